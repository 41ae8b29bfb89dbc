"""Scripts that share a loader: many ways to keep options, and to pick some of them."""

from __future__ import annotations

SAME_OPTIONS = {
    "hydra instantiate": """
        import importlib
        cfg = {
            "data": {"size": args.size, "root": "/d"},
            "opt": {"lr": args.lr},
            "out": args.out,
        }
        def build(cls, **kw):
            return cls(**kw)
        make_loader = lambda: DataLoader(
            build(D, data=cfg["data"]["root"], size=cfg["data"]["size"])
        )
    """,
    "click-like main": """
        def main(size, data, lr, seed, out, workers):
            opts = locals()
            print(opts["lr"])
            return lambda: DataLoader(D(data, size))
        make_loader = main(**vars(args))
    """,
    "trainer with dict cfg": """
        class Trainer:
            def __init__(self, cfg):
                self.cfg = cfg
                self.lr = cfg["lr"]
                self.best = float("inf")
            def data(self):
                c = self.cfg
                return DataLoader(D(c["data"], c["size"]), num_workers=c["workers"])
        t = Trainer(vars(args))
        make_loader = lambda: t.data()
    """,
    "callable class cfg": """
        class Build:
            def __init__(self, args):
                self.args = args
            def __call__(self):
                return DataLoader(D(self.args.data, self.args.size))
        make_loader = Build(args)
    """,
    "logging adapters": """
        import logging
        log = logging.LoggerAdapter(logging.getLogger("x"), {"out": args.out})
        def make_loader():
            log.info("lr %s", args.lr)
            return DataLoader(D(args.data, args.size))
    """,
    "time stamps": """
        import time, datetime
        RUN = f"{datetime.datetime.now():%Y%m%d}-{args.seed}"
        def make_loader():
            t0 = time.time()
            ds = D(args.data, args.size)
            print(f"{RUN}: {time.time() - t0:.1f}s")
            return DataLoader(ds)
    """,
    "assert types": """
        def make_loader():
            assert isinstance(args.lr, float), type(args.lr)
            assert args.out and args.seed >= 0
            return DataLoader(D(args.data, args.size))
    """,
    "warn if": """
        import warnings
        def make_loader():
            if args.workers > 4:
                warnings.warn(f"{args.workers} workers are many")
            return DataLoader(D(args.data, args.size), num_workers=args.workers)
    """,
    "print with computed": """
        def make_loader():
            total = args.size * args.lr
            per = total / max(1, args.workers)
            msg = f"{per:.2f}"
            if per > 10:
                msg += " (many)"
            print(msg)
            return DataLoader(D(args.data, args.size))
    """,
    "format helper": """
        def fmt(d, indent=0):
            out = []
            for k, v in d.items():
                if isinstance(v, dict):
                    out.append(fmt(v, indent + 1))
                else:
                    out.append(" " * indent + f"{k}: {v}")
            return "\\n".join(out)
        def make_loader():
            print(fmt(vars(args)))
            return DataLoader(D(args.data, args.size))
    """,
    "pprint": """
        import pprint
        def make_loader():
            pprint.pprint(vars(args))
            print(pprint.pformat(vars(args)))
            return DataLoader(D(args.data, args.size))
    """,
    "yaml-like dump": """
        import json
        def make_loader():
            s = json.dumps({k: v for k, v in vars(args).items() if k != "size"}, indent=1)
            pathlib.Path(args.out, "c.json").write_text(s)
            return DataLoader(D(args.data, args.size))
    """,
    "shutil copy": """
        import shutil
        def make_loader():
            if os.path.exists(args.out):
                print("keeping", args.out)
            return DataLoader(D(args.data, args.size))
    """,
    "resume flag": """
        args.resume = args.seed > 3
        def make_loader():
            start = 5 if args.resume else 0
            print("start epoch", start)
            return DataLoader(D(args.data, args.size))
    """,
    "model beside": """
        model = torch.nn.Linear(3, 3)
        opt = torch.optim.SGD(model.parameters(), lr=args.lr)
        ds = D(args.data, args.size)
        def train(loader):
            for g in opt.param_groups:
                g["lr"] = args.lr
        make_loader = lambda: DataLoader(ds, batch_size=2)
    """,
    "ema class": """
        class Exp:
            lr = args.lr
            def __init__(self):
                self.size = args.size
                self.name = f"e{self.lr}"
            def __str__(self):
                return self.name
            @property
            def loader(self):
                print(f"{self}")
                return DataLoader(D("/d", self.size))
        e = Exp()
        make_loader = lambda: e.loader
    """,
    "attrs-like": """
        class Base:
            def __init__(self, **kw):
                self.__dict__ = dict(kw)
        def make_loader():
            c = Base(**vars(args))
            return DataLoader(D(c.data, c.size))
    """,
    "vars assign": """
        class Base:
            pass
        def make_loader():
            c = Base()
            vars(c).update(vars(args))
            return DataLoader(D(c.data, c.size))
    """,
    "from_dict classmethod": """
        class Cfg:
            @classmethod
            def from_dict(cls, d):
                c = cls()
                for k, v in d.items():
                    setattr(c, k, v)
                return c
        def make_loader():
            c = Cfg.from_dict(vars(args))
            return DataLoader(D(c.data, c.size))
    """,
    "recursive attrdict": """
        class Cfg(dict):
            def __init__(self, d):
                for k, v in d.items():
                    self[k] = Cfg(v) if isinstance(v, dict) else v
            __getattr__ = dict.__getitem__
        def make_loader():
            c = Cfg(
                {"data": {"size": args.size}, "opt": {"lr": args.lr, "sched": {"n": args.seed}}}
            )
            return DataLoader(D("/d", c.data.size))
    """,
    "merge defaults func": """
        def merge(a, b):
            out = dict(a)
            for k, v in b.items():
                out[k] = merge(out[k], v) if isinstance(v, dict) and k in out else v
            return out
        DEF = {"data": {"size": 1, "root": "/d"}, "opt": {"lr": 0}}
        def make_loader():
            cfg = merge(DEF, {"data": {"size": args.size}, "opt": {"lr": args.lr}})
            return DataLoader(D(cfg["data"]["root"], cfg["data"]["size"]))
    """,
    "dotted get": """
        cfg = {"data": {"size": args.size}, "opt": {"lr": args.lr}}
        def get(cfg, path):
            for part in path.split("."):
                cfg = cfg[part]
            return cfg
        make_loader = lambda: DataLoader(D("/d", get(cfg, "data.size")))
    """,
    "itemgetter": """
        import operator
        cfg = {"size": args.size, "lr": args.lr}
        make_loader = lambda: DataLoader(D("/d", operator.itemgetter("size")(cfg)))
    """,
    "attrgetter": """
        import operator
        make_loader = lambda: DataLoader(D("/d", operator.attrgetter("size")(args)))
    """,
    "match kind": """
        def make_loader():
            match args.data:
                case "/data":
                    root = "/x"
                case other:
                    root = other
            return DataLoader(D(root, args.size))
    """,
    "list of pairs dict": """
        def make_loader():
            cfg = dict([("size", args.size), ("lr", args.lr)])
            return DataLoader(D("/d", cfg["size"]))
    """,
    "zip dict": """
        def make_loader():
            cfg = dict(zip(("size", "lr"), (args.size, args.lr)))
            return DataLoader(D("/d", cfg["size"]))
    """,
    "tuple unpack opts": """
        def opts():
            return args.size, args.lr, args.out
        def make_loader():
            size, lr, out = opts()
            print(lr, out)
            return DataLoader(D("/d", size))
    """,
    "namedtuple make": """
        Cfg = collections.namedtuple("Cfg", "size lr out")
        def make_loader():
            c = Cfg(size=args.size, lr=args.lr, out=args.out)
            return DataLoader(D("/d", c.size))
    """,
    "typing NamedTuple": """
        from typing import NamedTuple
        class Cfg(NamedTuple):
            size: int
            lr: float = 0
        def make_loader():
            c = Cfg(args.size, args.lr)
            return DataLoader(D("/d", c.size))
    """,
    "typeddict": """
        from typing import TypedDict
        class Cfg(TypedDict):
            size: int
            lr: float
        def make_loader():
            c = Cfg(size=args.size, lr=args.lr)
            return DataLoader(D("/d", c["size"]))
    """,
    "a dict subclass of many options": """
        for number in range(60):
            setattr(args, f"option_{number}", args.lr * number)
        class Cfg(dict):
            def __setattr__(self, name, value):
                self[name] = value
            def __getattr__(self, name):
                return self[name]
        def make_loader():
            cfg = Cfg()
            for name, value in vars(args).items():
                setattr(cfg, name, value)
            return DataLoader(D(cfg.data, cfg.size))
    """,
}
