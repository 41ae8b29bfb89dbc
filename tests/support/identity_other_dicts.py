"""Scripts that share a loader: dicts that are copied, merged, iterated and derived from."""

from __future__ import annotations

# Each has two versions, told apart by what stands for $: the two values of its first line.
OTHER_DICTS = {
    "popped default": """
        # 3 | 4
        opts = {"size": $, "lr": 1}
        def make_loader():
            kw = dict(opts)
            n = kw.pop("size", 9)
            return DataLoader(D("/d", n))
    """,
    "an entry of a ChainMap": """
        # 3 | 4
        opts = {"size": $}
        make_loader = lambda: DataLoader(D("/d", collections.ChainMap({"a": 1}, opts)["size"]))
    """,
    "an entry of a UserDict": """
        # 3 | 4
        opts = {"size": $}
        class Cfg(collections.UserDict):
            pass
        make_loader = lambda: DataLoader(D("/d", Cfg(opts)["size"]))
    """,
    "kwargs default missing": """
        # 'size': 3 | 'lr': 3
        opts = {$}
        def build(size=9, **rest):
            return D("/d", size)
        make_loader = lambda: DataLoader(build(**opts))
    """,
    "dict iteration sum": """
        # 1 | 2
        opts = {"a": 1, "b": $}
        def make_loader():
            n = 0
            for k, v in opts.items():
                n += v
            return DataLoader(D("/d", n))
    """,
    "dict iteration keys": """
        # a | b
        opts = {"$": 1}
        def make_loader():
            names = []
            for k in opts:
                names.append(k)
            return DataLoader(D(names, 3))
    """,
    "sorted keys": """
        # a | b
        opts = {"$": 1}
        make_loader = lambda: DataLoader(D(sorted(opts), 3))
    """,
    "len of dict": """
        # 'a':1 | 'a':1,'b':2
        opts = {$}
        make_loader = lambda: DataLoader(D("/d", len(opts)))
    """,
    "values of a copy": """
        # 1 | 2
        opts = {"a": $}
        def make_loader():
            c = opts.copy()
            return [np.zeros(v) for v in c.values()]
    """,
    "order of a copy": """
        # a=1, b=2 | b=2, a=1
        opts = dict($)
        def make_loader():
            c = dict(opts)
            return [np.zeros(v) for v in c.values()]
    """,
    "order of merged": """
        # a=1, b=2 | b=2, a=1
        opts = dict($)
        def make_loader():
            c = {**opts}
            return [np.zeros(v) for v in c.values()]
    """,
    "order in AttrDict": """
        # a=1, b=2 | b=2, a=1
        opts = dict($)
        class A(dict):
            pass
        def make_loader():
            return [np.zeros(v) for v in A(opts).values()]
    """,
    "non-string keys copy": """
        # 1 | 2
        opts = {0: $}
        make_loader = lambda: DataLoader(D("/d", dict(opts)[0]))
    """,
    "missing hook": """
        # 1 | 2
        class M(dict):
            def __missing__(self, k):
                return $
        make_loader = lambda: DataLoader(D("/d", M()["x"]))
    """,
    "dict subclass method": """
        # 1 | 2
        class M(dict):
            def size(self):
                return self["n"] * $
        make_loader = lambda: DataLoader(D("/d", M(n=3).size()))
    """,
    "dict subclass overriding getitem": """
        # 1 | 2
        class M(dict):
            def __getitem__(self, k):
                return super().__getitem__(k) * $
        make_loader = lambda: DataLoader(D("/d", M(n=3)["n"]))
    """,
    "dict subclass overriding items": """
        # 1 | 2
        class M(dict):
            def items(self):
                return [(k, v * $) for k, v in super().items()]
        make_loader = lambda: [np.zeros(v) for k, v in M(n=3).items()]
    """,
    "dict subclass iter": """
        # 1 | 2
        class M(dict):
            def __iter__(self):
                return iter([$])
        make_loader = lambda: [np.zeros(v) for v in M()]
    """,
    "dict subclass class attr": """
        # 1 | 2
        class M(dict):
            scale = $
        make_loader = lambda: DataLoader(D("/d", M().scale))
    """,
    "dict subclass contains": """
        # True | False
        class M(dict):
            def __contains__(self, k):
                return $
        make_loader = lambda: DataLoader(D("/d", 3 if "x" in M() else 4))
    """,
    "dict subclass len": """
        # 1 | 2
        class M(dict):
            def __len__(self):
                return $
        make_loader = lambda: DataLoader(D("/d", len(M())))
    """,
    "dict subclass init computes": """
        # 1 | 2
        N = $
        class M(dict):
            def __init__(self, **kw):
                super().__init__(**kw)
                self["n"] = N
        make_loader = lambda: DataLoader(D("/d", M(a=1)["n"]))
    """,
    "dict subclass post set": """
        # 1 | 2
        N = $
        class M(dict):
            pass
        def make_loader():
            m = M()
            m.hidden = N
            return DataLoader(D("/d", m.hidden))
    """,
    "is None local dict default": """
        # 1 | 2
        DEF = {"n": $}
        def f(cfg=None):
            if cfg is None:
                cfg = DEF
            return cfg["n"]
        make_loader = lambda: DataLoader(D("/d", f()))
    """,
    "empty kwargs default": """
        # 1 | 2
        DEF = {"n": $}
        def f(**kw):
            if not kw:
                kw = DEF
            return kw["n"]
        make_loader = lambda: DataLoader(D("/d", f()))
    """,
    "kw or default": """
        # 1 | 2
        DEF = {"n": $}
        def f(kw=None):
            kw = kw or DEF
            return kw["n"]
        make_loader = lambda: DataLoader(D("/d", f({})))
    """,
    "global dict set": """
        # 1 | 2
        N = $
        CFG = {}
        def make_loader():
            CFG["n"] = N
            return DataLoader(D("/d", CFG["n"]))
    """,
}
