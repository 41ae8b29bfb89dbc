"""Scripts that share a loader: loops, and lists and dicts that may be empty."""

from __future__ import annotations

# Each has two versions, told apart by what stands for $: the two values of its first line.
OTHER_LOOPS = {
    "loop runs whole then conditional": """
        # 1 | 2
        opts = types.SimpleNamespace(a=1, b=$)
        def make_loader():
            n = 0
            for name in ("a", "b"):
                v = getattr(opts, name)
                if v > 1:
                    n = v
            return DataLoader(D("/d", n))
    """,
    "loop with try": """
        # 1 | 2
        opts = {"a": "x", "b": "$"}
        def make_loader():
            out = {}
            for k, v in opts.items():
                try:
                    out[k] = int(v)
                except ValueError:
                    out[k] = v
            return DataLoader(D(out, 3))
    """,
    "nested loops": """
        # 1 | 2
        opts = {"a": {"x": $}, "b": {"x": 3}}
        def make_loader():
            out = {}
            for k, sub in opts.items():
                for kk, v in sub.items():
                    out[f"{k}.{kk}"] = v
            return DataLoader(D("/d", out["a.x"]))
    """,
    "initial value used when loop empty": """
        # 1 | 2
        N = $
        opts = {}
        def make_loader():
            n = N
            for k, v in opts.items():
                n = v
            return DataLoader(D("/d", n))
    """,
    "initial value of an empty list": """
        # 1 | 2
        N = $
        names = []
        def make_loader():
            n = N
            for name in names:
                n = getattr(args, name)
            return DataLoader(D("/d", n))
    """,
    "function redefined attr in loop": """
        # 1 | 2
        opts = {"scale": $}
        class E(D):
            def __getitem__(self, i):
                return i * self.scale
        def make_loader():
            ds = E("/d", 3)
            for k, v in opts.items():
                setattr(ds, k, v)
            return DataLoader(ds)
    """,
    "dict() of a made dict subclass": """
        # 1 | 2
        N = $
        class A(dict):
            pass
        def make_loader():
            a = A(size=N)
            return DataLoader(D("/d", dict(a)["size"]))
    """,
    "json of a made dict": """
        # 1 | 2
        import json
        N = $
        class A(dict):
            pass
        def make_loader():
            return DataLoader(D(json.dumps(A(size=N)), 3))
    """,
    "list of a made dict": """
        # 'a' | 'b'
        k = $
        class A(dict):
            pass
        def make_loader():
            a = A()
            a[k] = 1
            return DataLoader(D(list(a), 3))
    """,
    "dict subclass in list": """
        # 1 | 2
        N = $
        class A(dict):
            pass
        def make_loader():
            return DataLoader(D([A(n=N)], 3))
    """,
    "dict subclass truth": """
        #  | a=1
        class A(dict):
            pass
        def make_loader():
            a = A($)
            return DataLoader(D("/d", 3 if a else 4))
    """,
    "truth of a copied dict": """
        #  | 'a': 1
        opts = {$}
        def make_loader():
            c = dict(opts)
            return DataLoader(D("/d", 3 if c else 4))
    """,
    "not of a copied dict": """
        #  | 'a': 1
        opts = {$}
        def make_loader():
            c = {**opts}
            if not c:
                return DataLoader(D("/d", 3))
            return DataLoader(D("/d", 4))
    """,
    "len of filtered": """
        # 1 | None
        opts = {"a": $, "b": 2}
        def make_loader():
            c = {k: v for k, v in opts.items() if v is not None}
            return DataLoader(D("/d", len(c)))
    """,
    "truth of conditional list": """
        # 0 | 1
        flag = $
        def make_loader():
            xs = []
            if flag:
                xs.append(1)
            return DataLoader(D("/d", 3 if xs else 4))
    """,
    "truth of conditional dict": """
        # 0 | 1
        flag = $
        def make_loader():
            kw = {}
            if flag:
                kw["a"] = 1
            return DataLoader(D("/d", 3 if kw else 4))
    """,
    "is None of conditional": """
        # 0 | 1
        flag = $
        def make_loader():
            x = None
            if flag:
                x = {}
            return DataLoader(D("/d", 3 if x is None else 4))
    """,
    "comparison of lists": """
        # 0 | 1
        flag = $
        def make_loader():
            xs = [1]
            if flag:
                xs.append(2)
            return DataLoader(D("/d", 3 if xs == [1] else 4))
    """,
    "filter by truth": """
        # 0 | 1
        xs = [$, 2]
        make_loader = lambda: [np.zeros(3) for x in filter(None, xs)]
    """,
    "zip unequal": """
        # 3 | 4
        n = $
        make_loader = lambda: [np.zeros(a) for a, b in zip([1, 2, 3, 4], range(n))]
    """,
    "zip known": """
        # 3 | 4
        xs = [1, $]
        make_loader = lambda: [np.zeros(a * b) for a, b in zip([1, 2], xs)]
    """,
    "itemgetter sort": """
        # 0 | 1
        import operator
        at = $
        make_loader = lambda: [
            np.zeros(a) for a, b in sorted([(1, 9), (2, 3)], key=operator.itemgetter(at))
        ]
    """,
    "attrgetter dotted": """
        # 3 | 4
        import operator
        cfg = types.SimpleNamespace(a=types.SimpleNamespace(b=$))
        make_loader = lambda: DataLoader(D("/d", operator.attrgetter("a.b")(cfg)))
    """,
    "generator setting": """
        # 1 | 2
        N = $
        class C:
            def __init__(self):
                self.d = {}
            def put(self, k, v):
                self.d[k] = v
                return self
            def get(self, k):
                return self.d[k]
        make_loader = lambda: DataLoader(D("/d", C().put("n", N).get("n")))
    """,
    "memoised helper second args": """
        # 1 | 2
        N = $
        def put(d, v):
            d["n"] = v
        def make_loader():
            a, b = {}, {}
            put(a, 1)
            put(b, N)
            return DataLoader(D("/d", b["n"]))
    """,
    "same container twice": """
        # 1 | 2
        N = $
        def put(d, k, v):
            d[k] = v
        def make_loader():
            a = {}
            put(a, "x", 1)
            put(a, "n", N)
            return DataLoader(D("/d", a["n"]))
    """,
}
