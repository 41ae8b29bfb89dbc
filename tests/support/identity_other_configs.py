"""Scripts that share a loader: other values in a configuration that the loader reads."""

from __future__ import annotations

# Each has two versions, told apart by what stands for $: the two values of its first line.
OTHER_CONFIGS = {
    "an entry of a dict subclass": """
        # 3 | 4
        options = {"size": $, "lr": 0.1}
        class AttrDict(dict):
            __getattr__ = dict.__getitem__
        def make_loader():
            cfg = AttrDict(options)
            return DataLoader(D("/d", cfg.size))
    """,
    "an entry of a dict subclass that is its own attributes": """
        # 3 | 4
        options = {"size": $, "lr": 0.1}
        class AttrDict(dict):
            def __init__(self, *given, **named):
                super().__init__(*given, **named)
                self.__dict__ = self
        def make_loader():
            cfg = AttrDict(**options)
            return DataLoader(D("/d", cfg["size"]))
    """,
    "an attribute that is set on a dict subclass": """
        # 3 | 4
        N = $
        class AttrDict(dict):
            __getattr__ = dict.__getitem__
            __setattr__ = dict.__setitem__
        def make_loader():
            cfg = AttrDict(size=1)
            cfg.size = N
            return DataLoader(D("/d", cfg["size"]))
    """,
    "all of a dict subclass": """
        # 3 | 4
        options = {"size": $}
        class AttrDict(dict):
            pass
        make_loader = lambda: DataLoader(D(AttrDict(options), 3))
    """,
    "a dict subclass as keyword arguments": """
        # 3 | 4
        options = {"size": $, "data": "/d"}
        class AttrDict(dict):
            pass
        def make_loader():
            cfg = AttrDict(options)
            return DataLoader(D(**cfg))
    """,
    "how a dict subclass finds its entries": """
        # name | name + "_train"
        options = {"size": 3, "size_train": 4}
        class AttrDict(dict):
            def __getattr__(self, name):
                return self[$]
        def make_loader():
            cfg = AttrDict(options)
            return DataLoader(D("/d", cfg.size))
    """,
    "how many a dict subclass has": """
        # 'a': 1 | 'a': 1, 'b': 2
        options = {$}
        class AttrDict(dict):
            pass
        def make_loader():
            cfg = AttrDict(options)
            return [np.zeros(3) for name in cfg]
    """,
    "an entry of a nested dict subclass": """
        # 3 | 4
        options = {"data": {"size": $}, "optim": {"lr": 0.1}}
        class EasyDict(dict):
            def __init__(self, d):
                for k, v in d.items():
                    setattr(self, k, v)
            def __setattr__(self, name, value):
                value = self.__class__(value) if isinstance(value, dict) else value
                super().__setattr__(name, value)
                super().__setitem__(name, value)
        def make_loader():
            cfg = EasyDict(options)
            return DataLoader(D("/d", cfg.data.size))
    """,
    "an entry of a library's dict subclass": """
        # 3 | 4
        options = {"size": $}
        def make_loader():
            cfg = collections.OrderedDict(options)
            return DataLoader(D("/d", cfg["size"]))
    """,
    "an attribute that is set by its name": """
        # 3 | 4
        options = {"size": $}
        class Config:
            def __init__(self, **kwargs):
                for key, value in kwargs.items():
                    setattr(self, key, value)
        make_loader = lambda: DataLoader(D("/d", Config(**options).size))
    """,
    "an object that takes over a dict": """
        # 3 | 4
        options = {"size": $}
        class Config:
            def __init__(self, options):
                self.__dict__.update(options)
        make_loader = lambda: DataLoader(D("/d", Config(options).size))
    """,
    "an object that asks a dict": """
        # 3 | 4
        options = {"size": $}
        class Config:
            def __init__(self, options):
                self._options = options
            def __getattr__(self, name):
                return self._options[name]
        make_loader = lambda: DataLoader(D("/d", Config(options).size))
    """,
    "a default that an option overrides": """
        # None | 4
        options = {"size": $}
        def make_loader():
            cfg = {"size": 3}
            for key, value in options.items():
                if value is not None:
                    cfg[key] = value
            return DataLoader(D("/d", cfg["size"]))
    """,
    "whether an option is there": """
        # 'size': 3 | 'lr': 3
        options = {$}
        def make_loader():
            cfg = dict(options)
            return DataLoader(D("/d", 4 if "size" in cfg else 5))
    """,
    "a default of a dict that is copied": """
        # 'size': 3 | 'lr': 3
        options = {$}
        def make_loader():
            cfg = dict(options)
            return DataLoader(D("/d", cfg.get("size", 9)))
    """,
    "what is set on options and handed on": """
        # 3 | 4
        N = $
        def make_loader():
            args.number = N
            return DataLoader(D(args, 3))
    """,
    "what is set on a configuration and handed on": """
        # 3 | 4
        N = $
        class Config:
            pass
        cfg = Config()
        def make_loader():
            cfg.number = N
            return DataLoader(D([cfg], 3))
    """,
    "what is set on options after they were handed on": """
        # 3 | 4
        N = $
        def make_loader():
            ds = D(args, 3)
            args.number = N
            return DataLoader(ds)
    """,
    "an option with a default that is set late": """
        # None | 7
        args.number = $
        def make_loader():
            if args.number is None:
                args.number = 3
            return DataLoader(D("/d", args.number))
    """,
    "a namespace within a namespace": """
        # 3 | 4
        cfg = {"data": {"size": $}, "optim": {"lr": 0.1}}
        def to_namespace(value):
            if isinstance(value, dict):
                return types.SimpleNamespace(**{k: to_namespace(v) for k, v in value.items()})
            return value
        def make_loader():
            conf = to_namespace(cfg)
            return DataLoader(D("/d", conf.data.size))
    """,
    "a class that finds its attributes in a file's text": """
        # 3 | 4
        import json
        TEXT = '{"size": $}'
        class Config(dict):
            def __init__(self, text):
                super().__init__(json.loads(text))
            def __getattr__(self, name):
                return self.get(name)
        make_loader = lambda: DataLoader(D("/d", Config(TEXT).size))
    """,
    "a field of a dataclass's field": """
        # 3 | 4
        @dataclasses.dataclass
        class Data:
            size: int = 1
        @dataclasses.dataclass
        class Config:
            data: Data = dataclasses.field(default_factory=lambda: Data($))
            lr: float = 0.1
        class Trainer:
            def __init__(self):
                self.cfg = Config()
            def loader(self):
                return DataLoader(D("/d", self.cfg.data.size))
        make_loader = Trainer().loader
    """,
    "an override of a configuration": """
        # data.size=3 | data.size=4
        overrides = ["$", "optim.lr=0.1"]
        def compose(overrides):
            cfg = {"data": {"size": "1"}, "optim": {"lr": "0"}}
            for one in overrides:
                path, value = one.split("=")
                section, name = path.split(".")
                cfg[section][name] = value
            return cfg
        make_loader = lambda: DataLoader(D("/d", int(compose(overrides)["data"]["size"])))
    """,
}
