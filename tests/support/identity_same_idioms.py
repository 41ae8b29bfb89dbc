"""Scripts that share a loader: idioms of many small scripts."""

from __future__ import annotations

SAME_IDIOMS = {
    "argparse parent parser": """
        base = argparse.ArgumentParser(add_help=False)
        base.add_argument("--size", type=int, default=100)
        p = argparse.ArgumentParser(parents=[base])
        for o in ("--lr", "--seed", "--out", "--workers"):
            p.add_argument(o)
        a = p.parse_args()
        make_loader = lambda: DataLoader(D("/d", a.size))
    """,
    "trainer mixin": """
        class DataMixin:
            def build(self):
                return D(self.opt.data, self.opt.size)
        class LogMixin:
            def log(self, *x):
                print(*x, self.opt.out)
        class T(DataMixin, LogMixin):
            def __init__(self, opt):
                self.opt = opt
            def loader(self):
                self.log("building", self.opt.lr)
                return DataLoader(self.build())
        make_loader = T(args).loader
    """,
    "static config module": """
        m = types.ModuleType("conf_fl")
        m.LR = args.lr
        m.SIZE = args.size
        sys.modules["conf_fl"] = m
        import conf_fl as C
        make_loader = lambda: DataLoader(D("/d", C.SIZE))
    """,
    "dict of lambdas with rate": """
        sched = {"cos": lambda: args.lr, "size": lambda: args.size}
        make_loader = lambda: DataLoader(D("/d", sched["size"]()))
    """,
    "optional override": """
        def make_loader():
            size = args.size
            if size is None:
                size = 3
            out = args.out
            if out is None:
                out = "runs"
            print(out)
            return DataLoader(D(args.data, size))
    """,
    "a rate that is bounded": """
        def make_loader():
            lr = args.lr if args.lr < 1 else 1.0
            steps = int(1 / lr)
            print("steps", steps)
            return DataLoader(D(args.data, args.size))
    """,
    "try import wandb": """
        try:
            import wandb_nonexistent as w
        except ImportError:
            w = None
        def make_loader():
            if w is not None:
                w.log({"lr": args.lr})
            return DataLoader(D(args.data, args.size))
    """,
    "verbose flag": """
        VERBOSE = args.seed > 0
        def vprint(*a):
            if VERBOSE:
                print(*a)
        def make_loader():
            vprint("lr", args.lr)
            return DataLoader(D(args.data, args.size))
    """,
    "log level by option": """
        import logging
        def make_loader():
            level = logging.DEBUG if args.seed else logging.INFO
            logging.log(level, "loading %s", args.out)
            logging.basicConfig(level=level)
            return DataLoader(D(args.data, args.size))
    """,
    "summary dict": """
        def make_loader():
            ds = D(args.data, args.size)
            info = {"n": len(ds), "lr": args.lr}
            info["fast"] = args.lr > 0.2
            if args.seed:
                info["seed"] = args.seed
            print(info)
            return DataLoader(ds)
    """,
    "list of messages": """
        def make_loader():
            lines = [f"lr {args.lr}"]
            if args.seed:
                lines.append(f"seed {args.seed}")
            lines += [args.out]
            print("\\n".join(lines))
            return DataLoader(D(args.data, args.size))
    """,
    "opts to dataclass via loop": """
        @dataclasses.dataclass
        class C:
            size: int = 0
            lr: float = 0
            out: str = ""
        def make_loader():
            c = C()
            for f in dataclasses.fields(C):
                if hasattr(args, f.name):
                    setattr(c, f.name, getattr(args, f.name))
            return DataLoader(D("/d", c.size))
    """,
    "nested function default": """
        def make_loader(opt=args):
            def inner(o=opt):
                return D(o.data, o.size)
            return DataLoader(inner())
    """,
    "options that are popped": """
        def make_loader():
            kw = dict(vars(args))
            lr = kw.pop("lr")
            kw.pop("seed", None)
            print(lr)
            return DataLoader(D(kw["data"], kw["size"]))
    """,
    "options that are deleted": """
        def make_loader():
            kw = vars(args).copy()
            del kw["lr"]
            return DataLoader(D(kw["data"], kw["size"]))
    """,
    "options by the names of parameters": """
        import inspect
        def make_loader():
            names = ("data", "size")
            kw = {n: vars(args)[n] for n in names}
            return DataLoader(D(**kw))
    """,
    "a helper that picks options": """
        def only(d, *keys):
            return {k: d[k] for k in keys if k in d}
        make_loader = lambda: DataLoader(D(**only(vars(args), "data", "size")))
    """,
    "options but for some": """
        SKIP = {"lr", "seed", "out", "workers"}
        make_loader = lambda: DataLoader(
            D(**{k: v for k, v in vars(args).items() if k not in SKIP})
        )
    """,
    "Namespace update": """
        def make_loader():
            ns = argparse.Namespace()
            ns.__dict__.update(vars(args))
            ns.split = "train"
            return DataLoader(D(ns.data + ns.split, ns.size))
    """,
    "Namespace of namespace": """
        def make_loader():
            ns = argparse.Namespace(**vars(args))
            ns.lr = ns.lr * 2
            return DataLoader(D(ns.data, ns.size))
    """,
    "an entry of a ChainMap": """
        def make_loader():
            cfg = collections.ChainMap({"split": "train"}, {"size": args.size})
            return DataLoader(D(cfg["split"], cfg["size"]))
    """,
    "an entry of a UserDict": """
        class Cfg(collections.UserDict):
            def __getattr__(self, k):
                if k == "data":
                    raise AttributeError(k)
                return self.data[k]
        def make_loader():
            cfg = Cfg({"size": args.size})
            return DataLoader(D("/d", cfg["size"]))
    """,
    "property config": """
        class Cfg:
            def __init__(self, a):
                self._a = a
            @property
            def size(self):
                return self._a.size
            @property
            def lr(self):
                return self._a.lr
        make_loader = lambda: DataLoader(D("/d", Cfg(args).size))
    """,
    "slots config": """
        class Cfg:
            __slots__ = ("size", "lr")
            def __init__(self, a):
                for n in self.__slots__:
                    setattr(self, n, getattr(a, n))
        def make_loader():
            c = Cfg(args)
            return DataLoader(D("/d", c.size))
    """,
    "enum phase": """
        class Phase(enum.Enum):
            TRAIN = "train"
            VAL = "val"
        def make_loader(phase=Phase.TRAIN):
            tag = "shuffled" if phase is Phase.TRAIN else "ordered"
            print(tag, args.lr)
            return DataLoader(D(phase.value, args.size), shuffle=phase is Phase.TRAIN)
    """,
    "context logger": """
        import contextlib
        @contextlib.contextmanager
        def section(name):
            print("begin", name, args.out)
            try:
                yield
            finally:
                print("end", name, "fast" if args.lr > 0.2 else "slow")
        def make_loader():
            with section("data"):
                ds = D(args.data, args.size)
            return DataLoader(ds)
    """,
    "counter in closure": """
        def main():
            step = 0
            best = args.lr
            def make_loader():
                return DataLoader(D(args.data, args.size))
            def train():
                nonlocal step, best
                step += 1
                best = min(best, args.lr)
            train()
            return make_loader
        make_loader = main()
    """,
    "global counter": """
        CALLS = 0
        def make_loader():
            global CALLS
            CALLS += 1
            print("call", CALLS, args.lr)
            return DataLoader(D(args.data, args.size))
    """,
    "self attrs printing": """
        class T:
            def __init__(self, a):
                self.a, self.step = a, int(a.lr * 10)
            def __repr__(self):
                return f"T({self.a.lr})"
            def loader(self):
                print(self, f"{self!r}", self.step)
                return DataLoader(D(self.a.data, self.a.size))
        make_loader = T(args).loader
    """,
    "str join of options": """
        def make_loader():
            name = "_".join(f"{k}{v}" for k, v in vars(args).items() if k != "size")
            print(name)
            return DataLoader(D(args.data, args.size))
    """,
    "path exists else message": """
        def make_loader():
            p = pathlib.Path(args.out)
            if p.exists() and any(p.iterdir()):
                print(f"{p} is not empty")
            else:
                p.mkdir(parents=True, exist_ok=True)
            return DataLoader(D(args.data, args.size))
    """,
    "reads seed for sampler not": """
        class Sampler:
            def __init__(self, n, seed):
                self.n, self.seed = n, 0
            def __iter__(self):
                return iter(range(self.n))
            def __len__(self):
                return self.n
        make_loader = lambda: DataLoader(
            D(args.data, args.size), sampler=Sampler(args.size, args.seed)
        )
    """,
    "raise if unknown": """
        def make_loader():
            kinds = {"a": 1}
            kind = "a"
            if kind not in kinds:
                raise KeyError(f"{kind}: {args.out}")
            if args.lr < 0:
                raise SystemExit("negative lr")
            return DataLoader(D(args.data, args.size))
    """,
    "a loop that tries again": """
        def make_loader():
            for attempt in range(3):
                try:
                    return DataLoader(D(args.data, args.size))
                except OSError as e:
                    print(f"attempt {attempt} of {args.out}: {e}")
    """,
    "a print that depends on the rank": """
        def make_loader():
            rank = int(os.environ.get("LOCAL_RANK", 0))
            if rank == 0 and args.out:
                print("rank 0 writes", args.out)
            return DataLoader(D(args.data, args.size))
    """,
    "class attr of args": """
        class Conf:
            def __init__(self):
                self.args = args
            def __getattr__(self, k):
                return getattr(self.args, k)
        def make_loader():
            c = Conf()
            return DataLoader(D(c.data, c.size))
    """,
}
