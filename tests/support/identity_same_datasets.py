"""Scripts that share a loader: datasets and loaders that keep more than they load."""

from __future__ import annotations

SAME_DATASETS = {
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
    "setup seed function": """
        def set_seed(s):
            torch.manual_seed(s)
        def make_loader():
            ds = D(args.data, args.size)
            return DataLoader(ds)
        set_seed(args.seed)
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
}
