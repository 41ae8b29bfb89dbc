"""Scripts that share a loader: configurations that are made of all options, and read in parts."""

from __future__ import annotations

SAME_WHOLE_CONFIGS = {
    "a dict subclass of all options": """
        class AttrDict(dict):
            __getattr__ = dict.__getitem__
            __setattr__ = dict.__setitem__
        def make_loader():
            cfg = AttrDict(vars(args))
            cfg.kind = "train"
            return DataLoader(D(cfg.data, cfg.size))
    """,
    "a dict subclass that is its own attributes": """
        class AttrDict(dict):
            def __init__(self, *given, **named):
                super().__init__(*given, **named)
                self.__dict__ = self
        def make_loader():
            cfg = AttrDict(**vars(args))
            print(cfg, cfg.lr)
            return DataLoader(D(cfg.data, size=cfg["size"]))
    """,
    "a dict subclass with a __getattr__": """
        class Config(dict):
            def __getattr__(self, name):
                try:
                    return self[name]
                except KeyError:
                    raise AttributeError(name)
            def __setattr__(self, name, value):
                self[name] = value
        def make_loader():
            cfg = Config(vars(args), kind="train")
            cfg.root = cfg.data
            return DataLoader(D(cfg.root, cfg.get("size", 3)))
    """,
    "a dict subclass, nested": """
        class EasyDict(dict):
            def __init__(self, d=None, **kwargs):
                if d is None:
                    d = {}
                if kwargs:
                    d.update(**kwargs)
                for k, v in d.items():
                    setattr(self, k, v)
            def __setattr__(self, name, value):
                if isinstance(value, (list, tuple)):
                    value = [self.__class__(x) if isinstance(x, dict) else x for x in value]
                elif isinstance(value, dict) and not isinstance(value, self.__class__):
                    value = self.__class__(value)
                super(EasyDict, self).__setattr__(name, value)
                super(EasyDict, self).__setitem__(name, value)
            __setitem__ = __setattr__
        def make_loader():
            cfg = EasyDict({"data": vars(args), "optim": {"lr": args.lr}})
            return DataLoader(D(cfg.data.data, cfg.data.size))
    """,
    "a dict subclass in the loader's own code": """
        def make_loader():
            class AttrDict(dict):
                def __getattr__(self, name):
                    return self[name]
            cfg = AttrDict(vars(args))
            return DataLoader(D(cfg.data, cfg.size))
    """,
    "a dict subclass of a library": """
        def make_loader():
            cfg = collections.OrderedDict(vars(args))
            cfg["kind"] = "train"
            more = collections.defaultdict(list, vars(args))
            return DataLoader(D(cfg["data"], more["size"]))
    """,
    "a dict subclass that is handed on": """
        class AttrDict(dict):
            __getattr__ = dict.get
        def build(cfg, split):
            print(f"{split}: {cfg}")
            opts = AttrDict(cfg)
            opts.update(split=split)
            return D(opts.data, opts.size)
        def make_loader():
            cfg = AttrDict()
            cfg.update(vars(args))
            return DataLoader(build(cfg, "train"))
    """,
    "an object with all options": """
        class Config:
            def __init__(self, **kwargs):
                for key, value in kwargs.items():
                    setattr(self, key, value)
        def make_loader():
            cfg = Config(**vars(args))
            return DataLoader(D(cfg.data, cfg.size))
    """,
    "an object that takes over all options": """
        class Config:
            def __init__(self, options):
                self.__dict__.update(vars(options))
                self.kind = "train"
        def make_loader():
            cfg = Config(args)
            return DataLoader(D(cfg.data, cfg.size))
    """,
    "an object that asks a dict": """
        class Config:
            def __init__(self, options):
                self._options = options
            def __getattr__(self, name):
                return self._options[name]
        def make_loader():
            cfg = Config(vars(args))
            return DataLoader(D(cfg.data, cfg.size))
    """,
    "a namespace of all options": """
        def make_loader():
            cfg = types.SimpleNamespace(**vars(args))
            other = argparse.Namespace(**{**vars(args), "kind": "train"})
            return DataLoader(D(cfg.data, other.size))
    """,
    "defaults that options override": """
        DEFAULTS = {"size": 3, "data": "/d", "lr": 0.3, "split": "train"}
        def make_loader():
            cfg = dict(DEFAULTS)
            for key, value in vars(args).items():
                if value is not None:
                    cfg[key] = value
            return DataLoader(D(cfg["data"] + cfg["split"], cfg["size"]))
    """,
    "options without None": """
        def make_loader():
            given = {key: value for key, value in vars(args).items() if value is not None}
            print(given)
            return DataLoader(D(given["data"], given["size"]))
    """,
    "options by a prefix": """
        args.data_root, args.data_size, args.optim_lr = args.data, args.size, args.lr
        def make_loader():
            mine = {
                key.removeprefix("data_"): value
                for key, value in vars(args).items()
                if key.startswith("data_")
            }
            return DataLoader(D(mine["root"], mine["size"]))
    """,
    "a dict of sections": """
        def make_loader():
            cfg = {
                "data": {"root": args.data, "size": args.size},
                "optim": {"lr": args.lr, "seed": args.seed},
                "log": {"folder": args.out},
            }
            data = cfg["data"]
            return DataLoader(D(data["root"], data["size"]))
    """,
    "a dataclass of sections": """
        @dataclasses.dataclass
        class Data:
            root: str = "/d"
            size: int = 3
        @dataclasses.dataclass
        class Optim:
            lr: float = 0.1
        @dataclasses.dataclass
        class Config:
            data: Data = dataclasses.field(default_factory=Data)
            optim: Optim = dataclasses.field(default_factory=Optim)
        cfg = Config()
        cfg.data.size, cfg.optim.lr = args.size, args.lr
        class Trainer:
            def __init__(self, cfg):
                self.cfg = cfg
            def loader(self):
                return DataLoader(D(self.cfg.data.root, self.cfg.data.size))
        make_loader = Trainer(cfg).loader
    """,
    "a dataclass made of all options": """
        @dataclasses.dataclass
        class Config:
            size: int
            data: str
            lr: float
            seed: int
            out: str
            workers: int
        def make_loader():
            cfg = Config(**vars(args))
            return DataLoader(D(cfg.data, cfg.size), num_workers=cfg.workers)
    """,
    "a file of options that options override": """
        import json
        TEXT = '{"data": {"root": "/d", "crop": 3}, "optim": {"lr": 0.1}}'
        cfg = json.loads(TEXT)
        cfg["data"]["size"], cfg["optim"]["lr"] = args.size, args.lr
        def to_namespace(value):
            if isinstance(value, dict):
                return types.SimpleNamespace(**{k: to_namespace(v) for k, v in value.items()})
            return value
        conf = to_namespace(cfg)
        make_loader = lambda: DataLoader(D(conf.data.root, conf.data.size))
    """,
    "a nested namespace that the loader makes": """
        cfg = {"data": {"root": "/d", "size": args.size}, "optim": {"lr": args.lr}}
        def to_namespace(value):
            if isinstance(value, dict):
                return types.SimpleNamespace(**{k: to_namespace(v) for k, v in value.items()})
            return value
        def make_loader():
            conf = to_namespace(cfg)
            return DataLoader(D(conf.data.root, conf.data.size))
    """,
    "a deep copy that is changed": """
        import copy
        def make_loader():
            mine = copy.deepcopy(args)
            mine.split = "train"
            mine.lr = mine.lr * 2
            return DataLoader(D(mine.data + mine.split, mine.size))
    """,
    "getattr with a default": """
        def opt(options, name, default=None):
            value = getattr(options, name, default)
            return default if value is None else value
        def make_loader():
            return DataLoader(D(opt(args, "data"), opt(args, "size", 3)))
    """,
    "a class whose attributes are options": """
        class C:
            lr = args.lr
            out = args.out
            size = args.size
            root = "/d"
        make_loader = lambda: DataLoader(D(C.root, C.size))
    """,
    "a closure over some options": """
        def main(size, data, lr=0.1, **others):
            steps = int(lr * 100)
            def make_loader():
                return DataLoader(D(data, size))
            print(steps, others)
            return make_loader
        make_loader = main(**vars(args))
    """,
    "a global that main sets": """
        CONFIG = {}
        def main():
            CONFIG.update(vars(args))
            CONFIG["name"] = f"run-{args.lr}-{args.seed}"
        main()
        def make_loader():
            return DataLoader(D(CONFIG["data"], CONFIG["size"]))
    """,
    "a partial of all options": """
        def build(data, size, lr, seed, out, workers):
            return DataLoader(D(data, size), num_workers=workers)
        make_loader = functools.partial(build, **vars(args))
    """,
}
