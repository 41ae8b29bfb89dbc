"""Scripts that share a loader: other values of options that are kept in many ways."""

from __future__ import annotations

# Each has two versions, told apart by what stands for $: the two values of its first line.
OTHER_OPTIONS = {
    "dict of pairs": """
        # 3 | 4
        N = $
        make_loader = lambda: DataLoader(D("/d", dict([("size", N)])["size"]))
    """,
    "zip dict, with another value": """
        # 3 | 4
        N = $
        make_loader = lambda: DataLoader(D("/d", dict(zip(("size",), (N,)))["size"]))
    """,
    "merge nested": """
        # 3 | 4
        N = $
        def merge(a, b):
            out = dict(a)
            for k, v in b.items():
                out[k] = merge(out[k], v) if isinstance(v, dict) and k in out else v
            return out
        DEF = {"data": {"size": 1}}
        make_loader = lambda: DataLoader(
            D("/d", merge(DEF, {"data": {"size": N}})["data"]["size"])
        )
    """,
    "merge default": """
        # 3 | 4
        def merge(a, b):
            out = dict(a)
            for k, v in b.items():
                out[k] = merge(out[k], v) if isinstance(v, dict) and k in out else v
            return out
        DEF = {"data": {"size": $}}
        make_loader = lambda: DataLoader(
            D("/d", merge(DEF, {"data": {"x": 1}})["data"]["size"])
        )
    """,
    "dotted get, with another value": """
        # size | lr
        cfg = {"data": {"size": 3, "lr": 4}}
        path = "data.$"
        def get(cfg, path):
            for part in path.split("."):
                cfg = cfg[part]
            return cfg
        make_loader = lambda: DataLoader(D("/d", get(cfg, path)))
    """,
    "attrgetter, with another value": """
        # 3 | 4
        import operator
        cfg = types.SimpleNamespace(size=$)
        make_loader = lambda: DataLoader(D("/d", operator.attrgetter("size")(cfg)))
    """,
    "dict assigned to __dict__": """
        # 3 | 4
        opts = {"size": $}
        class B:
            def __init__(self, **kw):
                self.__dict__ = dict(kw)
        make_loader = lambda: DataLoader(D("/d", B(**opts).size))
    """,
    "vars update": """
        # 3 | 4
        opts = {"size": $}
        class B:
            pass
        def make_loader():
            b = B()
            vars(b).update(opts)
            return DataLoader(D("/d", b.size))
    """,
    "recursive attrdict, with another value": """
        # 3 | 4
        opts = {"data": {"size": $}}
        class Cfg(dict):
            def __init__(self, d):
                for k, v in d.items():
                    self[k] = Cfg(v) if isinstance(v, dict) else v
            __getattr__ = dict.__getitem__
        make_loader = lambda: DataLoader(D("/d", Cfg(opts).data.size))
    """,
    "list in config": """
        # 3 | 4
        opts = {"sizes": [1, $]}
        class Cfg(dict):
            __getattr__ = dict.__getitem__
        def make_loader():
            c = Cfg(opts)
            return [np.zeros(n) for n in c.sizes]
    """,
    "config passed to dataset": """
        # 3 | 4
        opts = {"size": $, "lr": 1}
        class Cfg(dict):
            __getattr__ = dict.__getitem__
        class E(Dataset):
            def __init__(self, cfg):
                self.cfg = cfg
            def __len__(self):
                return self.cfg.size
            def __getitem__(self, i):
                return i
        make_loader = lambda: DataLoader(E(Cfg(opts)))
    """,
    "config in dataset via namespace": """
        # 3 | 4
        opts = {"size": $, "lr": 1}
        class E(Dataset):
            def __init__(self, **kw):
                self.o = types.SimpleNamespace(**kw)
            def __len__(self):
                return self.o.size
            def __getitem__(self, i):
                return i
        make_loader = lambda: DataLoader(E(**opts))
    """,
    "branch sets dataset attr": """
        # 0 | 1
        flag = $
        class E(D):
            def __getitem__(self, i):
                return i + self.off
        def make_loader():
            ds = E("/d", 3)
            ds.off = 0
            if flag:
                ds.off = 1
            return DataLoader(ds)
    """,
    "branch wraps dataset": """
        # 0 | 1
        flag = $
        class W(Dataset):
            def __init__(self, d):
                self.d = d
            def __len__(self):
                return len(self.d)
            def __getitem__(self, i):
                return -self.d[i]
        def make_loader():
            ds = D("/d", 3)
            if flag:
                ds = W(ds)
            return DataLoader(ds)
    """,
    "branch in init of dataset": """
        # 0 | 1
        flag = $
        class E(D):
            def __init__(self):
                super().__init__("/d", 3)
                if flag:
                    self.get = self.a
                else:
                    self.get = self.b
            def a(self, i):
                return i
            def b(self, i):
                return -i
            def __getitem__(self, i):
                return self.get(i)
        make_loader = lambda: DataLoader(E())
    """,
    "conditional generator of worker": """
        # 0 | 1
        flag = $
        def init(i):
            if flag:
                np.random.seed(i)
        make_loader = lambda: DataLoader(D("/d", 3), worker_init_fn=init)
    """,
    "conditional print and return": """
        # 0 | 1
        flag = $
        def f():
            if flag:
                print("x")
                return 3
            print("y")
            return 4
        make_loader = lambda: DataLoader(D("/d", f()))
    """,
    "conditional loop count": """
        # 2 | 3
        n = $
        def make_loader():
            out = []
            while len(out) < n:
                out.append(np.zeros(3))
            return out
    """,
    "flag through two helpers": """
        # 0 | 1
        flag = $
        def a():
            return bool(flag)
        def b():
            return 3 if a() else 4
        make_loader = lambda: DataLoader(D("/d", b()))
    """,
    "flag in attribute": """
        # 0 | 1
        class C:
            def __init__(self):
                self.flag = $
            def size(self):
                return 3 if self.flag else 4
        c = C()
        make_loader = lambda: DataLoader(D("/d", c.size()))
    """,
    "flag of made": """
        # 0 | 1
        F = $
        class C:
            def __init__(self):
                self.flag = F
            def size(self):
                return 3 if self.flag else 4
        make_loader = lambda: DataLoader(D("/d", C().size()))
    """,
    "truth of list": """
        # [] | [1]
        xs = $
        make_loader = lambda: DataLoader(D("/d", 3 if xs else 4))
    """,
    "printed loop then used": """
        # 1 | 2
        opts = {"a": $}
        def make_loader():
            total = 0
            for k, v in opts.items():
                print(k, v)
                total += v
            return DataLoader(D("/d", total))
    """,
    "sum in loop of names": """
        # 1 | 2
        opts = types.SimpleNamespace(a=1, b=$)
        def make_loader():
            total = 0
            for n in ("a", "b"):
                total += getattr(opts, n)
            return DataLoader(D("/d", total))
    """,
    "list from loop of names": """
        # 1 | 2
        opts = types.SimpleNamespace(a=1, b=$)
        def make_loader():
            return [np.zeros(getattr(opts, n)) for n in ("a", "b")]
    """,
    "carry over rounds": """
        # 1 | 2
        opts = {"a": 1, "b": $, "c": 3}
        def make_loader():
            prev, last = 0, 0
            for k, v in opts.items():
                last = prev
                prev = v
            return DataLoader(D("/d", last))
    """,
    "swap in loop": """
        # 1 | 2
        N = $
        def make_loader():
            a, b = N, 5
            for n in ("x",):
                a, b = b, a
            return DataLoader(D("/d", b))
    """,
    "log returns": """
        # 1 | 2
        N = $
        class L:
            def log(self, x):
                return x
        l = L()
        make_loader = lambda: DataLoader(D("/d", l.log(N)))
    """,
    "none with log name": """
        # 1 | 2
        class L:
            log = None
        N = $
        def make_loader():
            L.log = N
            return DataLoader(D("/d", L.log))
    """,
    "user tqdm": """
        # 1 | 2
        def tqdm(xs, n=$):
            return xs[:n]
        make_loader = lambda: [np.zeros(x) for x in tqdm([1, 2, 3])]
    """,
    "user print": """
        # 1 | 2
        def print(x):
            return x
        N = $
        make_loader = lambda: DataLoader(D("/d", print(N)))
    """,
}
