"""Scripts that share a loader: idioms of many small scripts."""

from __future__ import annotations

# Each has two versions, told apart by what stands for $: the two values of its first line.
OTHER_IDIOMS = {
    "setattr via fields": """
        # 3 | 4
        opts = types.SimpleNamespace(size=$, lr=1)
        class C:
            pass
        def make_loader():
            c = C()
            for n in ("size", "lr"):
                setattr(c, n, getattr(opts, n))
            return DataLoader(D("/d", c.size))
    """,
    "delegating getattr": """
        # 3 | 4
        opts = types.SimpleNamespace(size=$, lr=1)
        class C:
            def __init__(self):
                self.o = opts
            def __getattr__(self, k):
                return getattr(self.o, k)
        make_loader = lambda: DataLoader(D("/d", C().size))
    """,
    "conditional in helper used": """
        # 0.1 | 0.5
        lr = $
        def kind():
            return "fast" if lr > 0.2 else "slow"
        def make_loader():
            k = kind()
            print(k)
            return DataLoader(D(k, 3))
    """,
    "joined messages used as path": """
        # 0 | 7
        seed = $
        def make_loader():
            parts = ["/d"]
            if seed:
                parts.append(str(seed))
            return DataLoader(D("/".join(parts), 3))
    """,
    "setattr hook": """
        # 1 | 2
        class M:
            def __setattr__(self, k, v):
                object.__setattr__(self, k, v * $)
        def make_loader():
            m = M()
            m.n = 3
            return DataLoader(D("/d", m.n))
    """,
    "setitem hook": """
        # 1 | 2
        class M:
            def __init__(self):
                self.x = 0
            def __setitem__(self, k, v):
                self.x = v * $
        def make_loader():
            m = M()
            m["n"] = 3
            return DataLoader(D("/d", m.x))
    """,
    "setattr unknown name": """
        # 1 | 2
        N = $
        class M:
            pass
        def make_loader():
            m = M()
            setattr(m, input(), N)
            return DataLoader(D(m, 3))
    """,
    "exit caught": """
        # 0.1 | 0.5
        lr = $
        def check():
            if lr > 0.2:
                sys.exit(1)
        def make_loader():
            n = 3
            try:
                check()
            except SystemExit:
                n = 4
            return DataLoader(D("/d", n))
    """,
    "an error after which something is left out": """
        # 0.1 | 0.5
        lr = $
        def make_loader():
            out = []
            try:
                if lr > 0.2:
                    raise ValueError
                out.append(1)
            except ValueError:
                pass
            return [np.zeros(3) for _ in out]
    """,
    "an assertion where a sequence ends": """
        # 3 | 4
        most = $
        class S:
            def __getitem__(self, i):
                assert i < most, "end"
                if i >= most:
                    raise IndexError
                return i
        make_loader = lambda: list(S())
    """,
    "try in outer caller": """
        # 0.1 | 0.5
        lr = $
        def a():
            if lr > 0.2:
                raise RuntimeError("x")
            return 3
        def b():
            return a()
        def make_loader():
            try:
                n = b()
            except RuntimeError:
                n = 4
            return DataLoader(D("/d", n))
    """,
    "raise own error caught": """
        # 0.1 | 0.5
        lr = $
        class Skip(Exception):
            pass
        def a(i):
            if i > lr * 10:
                raise Skip
            return i
        class E(D):
            def __getitem__(self, i):
                try:
                    return a(i)
                except Skip:
                    return -1
        make_loader = lambda: DataLoader(E("/d", 9))
    """,
    "raise StopIteration subclass": """
        # 3 | 4
        most = $
        class End(StopIteration):
            pass
        class It:
            def __init__(self):
                self.i = 0
            def __iter__(self):
                return self
            def __next__(self):
                self.i += 1
                if self.i > most:
                    raise End
                return self.i
        make_loader = lambda: list(It())
    """,
    "isinstance config": """
        # 1 | [1]
        cfg = $
        def make_loader():
            sizes = cfg if isinstance(cfg, list) else [cfg, cfg]
            return [np.zeros(3) for _ in sizes]
    """,
    "a generator around a list": """
        # 3 | 4
        xs = list(range($))
        def track(each):
            for x in each:
                yield x
        make_loader = lambda: [np.zeros(3) for _ in track(xs)]
    """,
    "loop else": """
        # a | z
        kind = "$"
        def make_loader():
            for name in ("a", "b"):
                if name == kind:
                    n = 3
                    break
            else:
                n = 4
            return DataLoader(D("/d", n))
    """,
    "mutable default arg": """
        # 1 | 2
        N = $
        def add(x, to=[]):
            to.append(x)
            return to
        make_loader = lambda: DataLoader(D(add(N), 3))
    """,
    "global list appended": """
        # 1 | 2
        N = $
        XS = []
        def make_loader():
            XS.append(N)
            return DataLoader(D(XS, 3))
    """,
    "namespace set and used by helper": """
        # 1 | 2
        N = $
        def helper():
            return args.extra
        def make_loader():
            args.extra = N
            return DataLoader(D("/d", helper()))
    """,
    "branch on method result": """
        # 1 | 2
        class C:
            def flag(self):
                return $ > 1
        def make_loader():
            c = C()
            if c.flag():
                n = 3
            else:
                n = 4
            return DataLoader(D("/d", n))
    """,
    "namedtuple replace": """
        # 3 | 4
        C = collections.namedtuple("C", "size lr")
        c = C(1, 2)
        N = $
        make_loader = lambda: DataLoader(D("/d", c._replace(size=N).size))
    """,
}
