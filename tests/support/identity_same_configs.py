"""Scripts that share a loader: configurations that are read in parts."""

from __future__ import annotations

SAME_CONFIGS = {
    "a nested dict": """
        cfg = {"data": {"size": args.size, "root": args.data},
            "optim": {"lr": args.lr}, "out": args.out}
        make_loader = lambda: DataLoader(D(cfg["data"]["root"], cfg["data"]["size"]))
    """,
    "a part of a config in a local": """
        cfg = types.SimpleNamespace(data=types.SimpleNamespace(size=args.size), lr=args.lr)
        def make_loader():
            data = cfg.data
            return DataLoader(D("/data", size=data.size))
    """,
    "a dataclass": """
        @dataclasses.dataclass
        class Config:
            size: int
            lr: float
            out: str
            def steps(self):
                return self.size / self.lr
        cfg = Config(args.size, args.lr, args.out)
        def make_loader():
            return DataLoader(D("/data", cfg.size))
    """,
    "keyword arguments from a dict": """
        def build(data, size, lr=None, seed=None, **rest):
            return DataLoader(D(data, size))
        make_loader = lambda: build(**vars(args))
    """,
    "get with a default": """
        cfg = {"size": args.size, "lr": args.lr, "seed": args.seed}
        make_loader = lambda: DataLoader(D(cfg.get("root", "/data"), getattr(args, "size", 3)))
    """,
    "a copy of args": """
        import copy
        def make_loader():
            mine = copy.deepcopy(args)
            return DataLoader(D(mine.data, mine.size))
    """,
    "the command line read inside": """
        def make_loader():
            given = parser.parse_args()
            return DataLoader(D(given.data, given.size))
    """,
    "a global of plain values": """
        SIZE, LR, OUT = args.size, args.lr, args.out
        TRANSFORMS = [lambda x: x * 2, lambda x: x + SIZE]
        def augment(x):
            for one in TRANSFORMS:
                x = one(x)
            return x
        class Augmented(D):
            def __getitem__(self, index):
                return augment(super().__getitem__(index))
        make_loader = lambda: DataLoader(Augmented("/data", SIZE))
    """,
    "vars subscript": """
        opt = vars(args)
        def make_loader():
            return DataLoader(D(opt["data"], opt["size"]))
    """,
    "a class as a configuration": """
        class Base:
            lr = args.lr
        class Cfg(Base):
            size = args.size
            root = args.data
        make_loader = lambda: DataLoader(D(Cfg.root, Cfg.size))
    """,
    "a dict with attributes": """
        class AttrDict(dict):
            def __getattr__(self, k):
                return self[k]
        cfg = AttrDict(size=args.size, lr=args.lr, out=args.out)
        make_loader = lambda: DataLoader(D("/d", cfg.size))
    """,
    "a dict that is its own attributes": """
        class AttrDict(dict):
            def __init__(self, *a, **k):
                super().__init__(*a, **k)
                self.__dict__ = self
        cfg = AttrDict(data=AttrDict(size=args.size), lr=args.lr, out=args.out)
        make_loader = lambda: DataLoader(D("/d", cfg.data.size))
    """,
    "namedtuple": """
        Cfg = collections.namedtuple("Cfg", "size lr out")
        cfg = Cfg(args.size, args.lr, args.out)
        make_loader = lambda: DataLoader(D("/d", cfg.size))
    """,
    "dataclass passed on": """
        @dataclasses.dataclass
        class Cfg:
            size: int
            lr: float
        cfg = Cfg(args.size, args.lr)
        def build(cfg):
            n = cfg.size
            return DataLoader(D("/d", n))
        def outer(c):
            return build(cfg=c)
        make_loader = lambda: outer(cfg)
    """,
    "parse inside function": """
        def get_args():
            p = argparse.ArgumentParser()
            p.add_argument("--size", type=int, default=100)
            p.add_argument("--lr", type=float)
            p.add_argument("--seed")
            p.add_argument("--out")
            return p.parse_args()
        def make_loader():
            a = get_args()
            return DataLoader(D("/d", a.size))
    """,
    "update dict": """
        defaults = {"size": 1, "root": "/d", "lr": 0}
        cfg = {**defaults, **vars(args)}
        def make_loader():
            kw = dict(data=cfg["root"])
            kw["size"] = cfg["size"]
            return DataLoader(D(**kw))
    """,
    "unpacked tuples": """
        def make_loader():
            root, size = args.data, args.size
            a, b = (root, size)
            return DataLoader(
                D(a, b),
                batch_size=getattr(args, "bs", 4),
                drop_last=getattr(args, "drop", False),
            )
    """,
    "a namespace made of args": """
        cfg = types.SimpleNamespace(**{k: v for k, v in vars(args).items()})
        def sub(c, *keys):
            for k in keys:
                c = getattr(c, k)
            return c
        make_loader = lambda: DataLoader(D(cfg.data, cfg.size))
    """,
    "kwargs passthrough": """
        def build(split, **kw):
            return DataLoader(D(kw["data"], kw.get("size", 1)))
        make_loader = functools.partial(build, "train", **vars(args))
    """,
    "some entries of a dict, by name": """
        cfg = vars(args)
        make_loader = lambda: DataLoader(D(**{k: cfg[k] for k in ("data", "size")}))
    """,
    "some attributes, by name": """
        def make_loader():
            kw = {k: getattr(args, k) for k in ("data", "size")}
            return DataLoader(D(**kw))
    """,
    "some entries of a dict, chosen": """
        def make_loader():
            kw = {k: v for k, v in vars(args).items() if k in ("data", "size")}
            return DataLoader(D(**kw))
    """,
    "a loop over some names": """
        def make_loader():
            kw = {}
            for k in ["data", "size"]:
                kw[k] = getattr(args, k)
            return DataLoader(D(**kw))
    """,
    "a dataclass with something replaced": """
        @dataclasses.dataclass
        class Cfg:
            size: int
            lr: float
            root: str = "/d"
        cfg = Cfg(args.size, args.lr)
        def make_loader():
            mine = dataclasses.replace(cfg, root="/e")
            return DataLoader(D(mine.root, mine.size))
    """,
    "the command line, with names of its own": """
        def make_loader():
            p = argparse.ArgumentParser()
            p.add_argument("-n", "--size", dest="n", type=int, default=100)
            group = p.add_argument_group("training")
            group.add_argument("--lr", type=float)
            group.add_argument("--seed")
            p.add_argument("--out")
            p.add_argument("--workers", type=int)
            p.add_argument("--num-samples", dest="samples")
            p.add_argument("kind", nargs="?", default="small")
            a = p.parse_args()
            return DataLoader(D(a.kind, a.n))
    """,
    "a dict of options with defaults": """
        def make_loader():
            kw = dict(data=args.data)
            kw.setdefault("size", args.size)
            options = {"lr": args.lr, **kw}
            return DataLoader(D(options["data"], options["size"]))
    """,
    "a named tuple as a dict": """
        C = collections.namedtuple('C', 'size lr')
        c = C(args.size, args.lr)

        def make_loader():
            d = c._asdict()
            return DataLoader(D('/d', d['size']))
    """,
    "names in a constant": """
        NAMES = ('data', 'size')
        make_loader = lambda: DataLoader(D(**{k: v for k, v in vars(args).items() if k in NAMES}))
    """,
    "what is left of args": """
        def f(size, **rest):
            print(rest)
            return D('/d', size)
        make_loader = lambda: DataLoader(f(**vars(args)))
    """,
    "a dataclass as a dict": """
        @dataclasses.dataclass
        class C:
            size: int = 1
            lr: float = 0
        c = C(args.size, args.lr)

        def make_loader():
            d = dataclasses.asdict(c)
            return DataLoader(D('/d', d['size']))
    """,
}
