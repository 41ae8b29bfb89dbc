"""Scripts that share a loader: many ways to write the same one."""

from __future__ import annotations

# Each is run with other learning rates, seeds and output folders, and is the same loader; with
# another size it is another one.
SAME = {
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
    "a dataset that keeps args": """
        class Keeps(Dataset):
            def __init__(self, args):
                super().__init__()
                self.args = args
                self.root = pathlib.Path(args.data)
            def __len__(self):
                return self.args.size
            def __getitem__(self, index):
                return torch.full((3,), index)
        make_loader = lambda: DataLoader(Keeps(args), batch_size=8)
    """,
    "a dataset that keeps args, made outside": """
        class Keeps(Dataset):
            def __init__(self, args):
                self.args = args
            def __len__(self):
                return self.args.size
            def __getitem__(self, index):
                return torch.full((3,), index)
        dataset = Keeps(args)
        make_loader = lambda: DataLoader(dataset, batch_size=8)
    """,
    "a loader made outside": """
        inner = DataLoader(D(args.data, args.size), batch_size=8, shuffle=True,
            num_workers=args.workers)
        make_loader = lambda: inner
    """,
    "augmentation with random": """
        import random
        random.seed(args.seed)
        class Noisy(D):
            def __getitem__(self, index):
                return super().__getitem__(index) + random.uniform(0, 1)
        make_loader = lambda: DataLoader(Noisy(args.data, args.size), batch_size=8)
    """,
    "augmentation with NumPy": """
        np.random.seed(args.seed)
        class Noisy(D):
            def __getitem__(self, index):
                return super().__getitem__(index) + np.random.rand() + np.random.normal()
        make_loader = lambda: DataLoader(Noisy(args.data, args.size), batch_size=8)
    """,
    "the generator of torch": """
        torch.manual_seed(args.seed)
        make_loader = lambda: DataLoader(D(args.data, args.size), generator=torch.default_generator)
    """,
    "workers that are seeded": """
        def seed_worker(worker):
            random.seed(torch.initial_seed() % 2**32)
            np.random.seed(torch.initial_seed() % 2**32)
        import random
        make_loader = lambda: DataLoader(D(args.data, args.size), worker_init_fn=seed_worker)
    """,
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
    "a registry": """
        REGISTRY = {"d": D}
        def build(kind, args):
            return DataLoader(REGISTRY[kind](args.data, args.size))
        make_loader = lambda: build("d", args)
    """,
    "a class made inside": """
        def make_loader():
            class Inner(Dataset):
                def __init__(self, args):
                    self.args = args
                def __len__(self):
                    return self.args.size
                def __getitem__(self, index):
                    return index
            return DataLoader(Inner(args))
    """,
    "a data module": """
        class Data:
            def __init__(self, args):
                self.args = args
            def setup(self):
                self.train = D(self.args.data, self.args.size)
            def train_dataloader(self):
                return DataLoader(self.train, batch_size=8)
            def describe(self):
                return self.args.lr
        data = Data(args)
        def make_loader():
            data.setup()
            return data.train_dataloader()
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
    "dataset with logger and args": """
        import logging
        log = logging.getLogger(__name__)
        class K(Dataset):
            def __init__(self, args, split="train"):
                self.args = args
                log.info("args %s", args)
                self.files = [f"{args.data}/{split}/{i}" for i in range(args.size)]
            def __len__(self):
                return len(self.files)
            def __getitem__(self, i):
                if self.args.size > 3:
                    log.debug("item %s of %s", i, self.args)
                return i
        make_loader = lambda: DataLoader(K(args))
    """,
    "a dataset made outside, with files": """
        class K(Dataset):
            def __init__(self, args, split="train"):
                self.hparams = args
                self.files = [f"{args.data}/{split}/{i}" for i in range(args.size)]
            def __len__(self):
                return len(self.files)
            def __getitem__(self, i):
                return self.files[i]
        ds = K(args)
        def make_loader():
            return DataLoader(ds, batch_size=4)
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
    "setup seed function": """
        def set_seed(s):
            torch.manual_seed(s)
        def make_loader():
            ds = D(args.data, args.size)
            return DataLoader(ds)
        set_seed(args.seed)
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
    "transform closures": """
        def compose(*fs):
            def apply(x):
                for f in fs:
                    x = f(x)
                return x
            return apply
        class T(D):
            def __init__(self, args, transform=None):
                super().__init__(args.data, args.size)
                self.transform = transform
            def __getitem__(self, i):
                return self.transform(super().__getitem__(i))
        make_loader = lambda: DataLoader(T(args, compose(lambda x: x, lambda x: x + args.size)))
    """,
    "update dict": """
        defaults = {"size": 1, "root": "/d", "lr": 0}
        cfg = {**defaults, **vars(args)}
        def make_loader():
            kw = dict(data=cfg["root"])
            kw["size"] = cfg["size"]
            return DataLoader(D(**kw))
    """,
    "lazy property": """
        class Exp:
            def __init__(self, a):
                self.a = a
            @functools.cached_property
            def ds(self):
                return D(self.a.data, self.a.size)
            @property
            def loader(self):
                return DataLoader(self.ds)
        exp = Exp(args)
        make_loader = lambda: exp.loader
    """,
    "classmethod factory": """
        class K(D):
            @classmethod
            def from_args(cls, args):
                return cls(args.data, args.size)
        make_loader = lambda: DataLoader(K.from_args(args))
    """,
    "iterable": """
        class It(IterableDataset):
            def __init__(self, cfg):
                self.cfg = cfg
            def __iter__(self):
                info = torch.utils.data.get_worker_info()
                for i in range(self.cfg.size):
                    yield i
        make_loader = lambda: DataLoader(It(args), batch_size=4)
    """,
    "assigned attributes later": """
        ds = D(args.data, args.size)
        ds.lr = args.lr
        ds.cfg = args
        make_loader = lambda: DataLoader(ds)
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
    "dataset keeping args passed to functions": """
        def load(args, i):
            return torch.zeros(args.size) + i
        class K(Dataset):
            def __init__(self, args):
                super().__init__()
                self.args = args
            def __len__(self):
                return 3
            def __getitem__(self, i):
                return load(self.args, i)
        make_loader = lambda: DataLoader(Subset(K(args), [0, 1]))
    """,
    "a walrus and a star": """
        def make_loader():
            with torch.random.fork_rng():
                if (n := args.size) > 3:
                    parts = [D(args.data, n), *[D(args.data, 3)]]
            return DataLoader(torch.utils.data.ConcatDataset(parts))
    """,
    "a print with a format": """
        T0 = random.random() + args.lr
        def make_loader():
            print(f"{args.out}: loading {args.size:5d}")
            print("%s: loading" % args.out, "{}: {}".format(args.out, args.lr))
            print("took", random.random() - T0, "of", str(args.lr), sep=args.out)
            message = "writes to " + args.out
            print(message, file=sys.stderr)
            sys.stderr.write(message)
            print(os.path.join(args.out, "log.txt"), pathlib.Path(args.out) / "log.txt")
            return DataLoader(D(args.data, args.size))
    """,
    "a log line with a format": """
        import logging, warnings
        log = logging.getLogger(__name__)
        def make_loader():
            log.info(f"{args.out}: loading")
            log.warning("%s: %s" % (args.out, args.lr))
            logging.info("{out}".format(out=args.out))
            logging.getLogger("data").error(f"{args.lr}")
            warnings.warn(f"{args.out}")
            return DataLoader(D(args.data, args.size))
    """,
    "messages of errors": """
        class Bad(Exception):
            def __init__(self, text, out):
                super().__init__(text + out)
        def make_loader():
            assert args.size > 0, f"{args.out} {args.lr}"
            if args.size > 10000:
                raise ValueError(f"{args.out}: too large at {args.lr}")
            if args.size > 20000:
                raise Bad("%s" % args.seed, args.out)
            return DataLoader(D(args.data, args.size))
    """,
    "an output folder": """
        class Logs(D):
            def __init__(self, args):
                super().__init__(args.data, args.size)
                self.out = args.out
            def __getitem__(self, index):
                try:
                    return super().__getitem__(index)
                except ValueError as error:
                    with open(f"{self.out}/bad.txt", "a") as file:
                        file.write(f"{self.out} {index} {error}")
                    file = open(os.path.join(self.out, "worse.txt"), mode="w")
                    print(index, self.out, file=file)
                    raise
        def make_loader():
            os.makedirs(args.out, exist_ok=True)
            pathlib.Path(args.out).mkdir(parents=True, exist_ok=True)
            return DataLoader(Logs(args))
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
    "a subclass of DataLoader": """
        class Mine(DataLoader):
            def __init__(self, dataset, **kw):
                super().__init__(dataset, num_workers=args.workers, **kw)
        made = Mine(D(args.data, args.size), batch_size=4)
        make_loader = lambda: [made, Mine(D(args.data, args.size), batch_size=8)]
    """,
    "a cache that was filled": """
        class Cached(D):
            def __init__(self, data, size):
                super().__init__(data, size)
                self.cache, self.file, self.seen = {}, None, []
            def __getitem__(self, index):
                if self.file is None:
                    self.file = {"lr": args.lr}
                self.seen.append(index)
                if index not in self.cache:
                    self.cache[index] = super().__getitem__(index)
                return self.cache[index]
        ds = Cached(args.data, args.size)
        if args.lr > 0.1:
            ds[0], ds[1]
        make_loader = lambda: DataLoader(ds)
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
    "a timer": """
        import contextlib, time
        @contextlib.contextmanager
        def timed(what):
            began = time.time()
            yield
            print(what, time.time() - began)
        def make_loader():
            with timed(f"loading {args.out}"):
                return DataLoader(D(args.data, args.size))
    """,
    "args as JSON": """
        import json

        def make_loader():
            print(json.dumps(vars(args)))
            return DataLoader(D(args.data, args.size))
    """,
    "args in a loop that prints": """
        def make_loader():
            for k, v in sorted(vars(args).items()):
                print(f'{k}={v}')
            return DataLoader(D(args.data, args.size))
    """,
    "args in a file": """
        import json

        def make_loader():
            with open(os.path.join(args.out, 'cfg.json'), 'w') as f:
                json.dump(vars(args), f)
            return DataLoader(D(args.data, args.size))
    """,
    "a folder that is made if need be": """
        def make_loader():
            if not os.path.exists(args.out):
                os.makedirs(args.out)
            return DataLoader(D(args.data, args.size))
    """,
    "a named tuple as a dict": """
        C = collections.namedtuple('C', 'size lr')
        c = C(args.size, args.lr)

        def make_loader():
            d = c._asdict()
            return DataLoader(D('/d', d['size']))
    """,
    "times": """
        import datetime
        NOW = datetime.datetime.now()

        def make_loader():
            print(datetime.datetime.now() - NOW, NOW.isoformat())
            return DataLoader(D(args.data, args.size))
    """,
    "names in a constant": """
        NAMES = ('data', 'size')
        make_loader = lambda: DataLoader(D(**{k: v for k, v in vars(args).items() if k in NAMES}))
    """,
    "a file opened when it is needed": """
        class E(D):
            h = None

            def __getitem__(s, i):
                if s.h is None:
                    s.h = open('/dev/null')
                return s.h.fileno()
        ds = E(args.data, args.size)
        if args.lr > 0.2:
            ds[0]
        make_loader = lambda: DataLoader(ds)
    """,
    "an attribute that is set when it is needed": """
        class E(D):

            def __getitem__(s, i):
                if not hasattr(s, 'h'):
                    s.h = [1, 2]
                return s.h[0]
        ds = E(args.data, args.size)
        if args.lr > 0.2:
            ds[0]
        make_loader = lambda: DataLoader(ds)
    """,
    "a property that was cached": """
        class E(D):

            @functools.cached_property
            def big(s):
                return list(range(s.size))

            def __getitem__(s, i):
                return s.big[i]
        ds = E(args.data, args.size)
        if args.lr > 0.2:
            ds[0]
        make_loader = lambda: DataLoader(ds)
    """,
    "a data module that was set up": """
        class M:

            def __init__(s, a):
                s.a = a
                s.ds = None

            def setup(s):
                if s.ds is None:
                    s.ds = D(s.a.data, s.a.size)

            def loader(s):
                s.setup()
                return DataLoader(s.ds)
        m = M(args)
        if args.lr > 0.2:
            m.setup()
        make_loader = lambda: m.loader()
    """,
    "a logger of one's own": """
        class Logger:

            def __init__(s, out):
                s.out = out
                s.n = 0

            def log(s, x):
                s.n += 1
                print(s.out, x)
        logger = Logger(args.out)

        def make_loader():
            logger.log(args.lr)
            return DataLoader(D(args.data, args.size))
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
    "an error that is raised again": """
        def make_loader():
            try:
                d = D(args.data, args.size)
            except ValueError as e:
                raise RuntimeError(f'{args.out}: {e}') from e
            return DataLoader(d)
    """,
    "the time it took": """
        import time
        T0 = time.perf_counter()

        class E(D):

            def __init__(s, *a):
                super().__init__(*a)
                s.t = time.perf_counter() - T0
        make_loader = lambda: DataLoader(E(args.data, args.size))
    """,
    "a print of the first rank only": """
        def main_print(*a):
            if int(os.environ.get('RANK', 0)) == 0:
                print(*a)

        def make_loader():
            main_print('lr', args.lr)
            return DataLoader(D(args.data, args.size))
    """,
    "args, a line each": """
        def make_loader():
            for k, v in vars(args).items():
                print(f'{k}={v}')
            return DataLoader(D(args.data, args.size))
    """,
}
