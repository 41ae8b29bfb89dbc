"""Scripts that share a loader: ways to write make_loader itself."""

from __future__ import annotations

SAME_FUNCTIONS = {
    "a lambda": """
        make_loader = lambda: DataLoader(D(args.data, args.size), batch_size=8, shuffle=True)
    """,
    "a function": """
        def make_loader():
            dataset = D(args.data, args.size)
            return DataLoader(dataset, batch_size=8, num_workers=args.workers)
    """,
    "a function of args": """
        def build(args):
            return DataLoader(D(args.data, args.size), batch_size=8)
        make_loader = lambda: build(args)
    """,
    "a partial": """
        def build(args):
            print("building with", args)
            return DataLoader(D(args.data, args.size), batch_size=8)
        make_loader = functools.partial(build, args)
    """,
    "a trainer's method": """
        class Trainer:
            def __init__(self, args):
                self.args, self.lr, self.out = args, args.lr, args.out
                self.model = torch.nn.Linear(2, 2)
            def dataset(self):
                return D(self.args.data, self.args.size)
            def make_loader(self):
                return DataLoader(self.dataset(), batch_size=8)
            def step(self):
                return self.lr
        make_loader = Trainer(args).make_loader
    """,
    "a closure in main": """
        def main(args):
            model = torch.nn.Linear(2, 2)
            optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
            def make_loader():
                return DataLoader(D(args.data, args.size), batch_size=8)
            return make_loader
        make_loader = main(args)
    """,
    "a cached function": """
        @functools.cache
        def dataset():
            return D(args.data, args.size)
        def make_loader():
            return DataLoader(dataset(), batch_size=8)
    """,
    "a decorator": """
        def timed(function):
            @functools.wraps(function)
            def wrapper(*given, **named):
                print(args.out)
                return function(*given, **named)
            return wrapper
        @timed
        def build(args, split):
            return DataLoader(D(args.data, args.size))
        make_loader = lambda: build(args, split="train")
    """,
    "an object that is called": """
        class Make:
            def __init__(self, args):
                self.args = args
            def __call__(self):
                return DataLoader(D(self.args.data, self.args.size))
        make_loader = Make(args)
    """,
    "a generator": """
        def make_loader():
            for first in range(0, args.size, 8):
                yield torch.arange(first, first + 8)
    """,
    "a registry": """
        REGISTRY = {"d": D}
        def build(kind, args):
            return DataLoader(REGISTRY[kind](args.data, args.size))
        make_loader = lambda: build("d", args)
    """,
    "a trainer's lambda": """
        class Trainer:
            def __init__(self, cfg):
                self.cfg = cfg
                self.model = torch.nn.Linear(3, 3)
                self.opt = torch.optim.Adam(self.model.parameters(), lr=cfg["lr"])
                self.make = lambda: self._loader("train")
            def _loader(self, split):
                ds = self._dataset(split)
                return DataLoader(
                    ds, batch_size=self.cfg.get("bs", 4), collate_fn=self._collate
                )
            def _dataset(self, split):
                return D(split, self.cfg["size"])
            def _collate(self, items):
                return torch.stack(items)
        make_loader = Trainer(dict(size=args.size, lr=args.lr, out=args.out)).make
    """,
    "conditional": """
        def make_loader():
            if args.size > 1000:
                ds = D(args.data, args.size)
            elif hasattr(args, "tiny"):
                ds = D(args.data, 1)
            else:
                ds = D(args.data, args.size)
            try:
                n = len(ds)
            except Exception as e:
                print(e)
            return DataLoader(ds)
    """,
    "classmethod factory": """
        class K(D):
            @classmethod
            def from_args(cls, args):
                return cls(args.data, args.size)
        make_loader = lambda: DataLoader(K.from_args(args))
    """,
    "a function by a computed name": """
        class Maker:
            def __init__(self, args):
                self.args = args
            def load_small(self):
                return D(self.args.data, self.args.size)
            def load_large(self):
                return D(self.args.data, self.args.lr)
            def make_loader(self, kind="small"):
                return DataLoader(getattr(self, "load_" + kind)())
        make_loader = Maker(args).make_loader
    """,
    "functions found in globals": """
        def build_small(args):
            return D(args.data, args.size)
        def build_large(args):
            return D(args.data, args.lr)
        kind = "small"
        def make_loader():
            return DataLoader(globals()[f"build_{kind}"](args))
    """,
    "a name that is evaluated": """
        def build(args):
            return D(args.data, args.size)
        make_loader = lambda: DataLoader(eval("build")(args))
    """,
    "maps": """
        def build(pair):
            return D(pair[0].data, pair[0].size + pair[1])
        def make_loader():
            return DataLoader(torch.utils.data.ConcatDataset(list(map(build, [(args, 1)]))))
    """,
}
