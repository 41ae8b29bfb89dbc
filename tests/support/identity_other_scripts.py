"""Scripts that share a loader: training scripts as people write them, with other data."""

from __future__ import annotations

# Each has two versions, told apart by what stands for $: the two values of its first line.
OTHER_SCRIPTS = {
    "another crop of a transform": """
        # 224 | 288
        class Compose:
            def __init__(self, steps):
                self.steps = steps
            def __call__(self, image):
                for step in self.steps:
                    image = step(image)
                return image
        class Crop:
            def __init__(self, size):
                self.size = size
            def __call__(self, image):
                return image[: self.size]
        def make_transform(cfg):
            steps = [Crop(cfg["crop"])]
            if cfg["is_train"]:
                steps.append(lambda image: image * 2)
            return Compose(steps)
        cfg = {"crop": $, "is_train": True}
        make_loader = lambda: DataLoader(D("/d", 3), collate_fn=make_transform(cfg))
    """,
    "whether a transform is there": """
        # True | False
        augment = $
        def make_loader():
            steps = [lambda x: x]
            if augment:
                steps.append(lambda x: x * 2)
            def collate(batch):
                for step in steps:
                    batch = step(batch)
                return batch
            return DataLoader(D("/d", 3), collate_fn=collate)
    """,
    "another split in a path": """
        # train | val
        split = "$"
        def make_loader():
            root = os.path.join(args.data, f"{split}_images")
            print(f"reading {root} into {args.out}")
            return DataLoader(D(root, 3))
    """,
    "another number of folds": """
        # 0 | 1
        FOLD = $
        def make_loader():
            order = np.random.RandomState(0).permutation(100)
            folds = np.array_split(order, 5)
            rest = [one for number, one in enumerate(folds) if number != FOLD]
            return DataLoader(Subset(D("/d", 100), np.concatenate(rest)))
    """,
    "another tokenizer": """
        # lower | upper
        class Tokenizer:
            def __init__(self, how):
                self.how = how
            def __call__(self, text):
                return getattr(text, self.how)().split()
        tokenizer = Tokenizer("$")
        class Texts(Dataset):
            def __init__(self, tokenizer, lines):
                self.tokenizer, self.lines = tokenizer, lines
            def __len__(self):
                return len(self.lines)
            def __getitem__(self, index):
                return self.tokenizer(self.lines[index])
        make_loader = lambda: DataLoader(Texts(tokenizer, ["a b", "c d"]))
    """,
    "another length of a sequence": """
        # 128 | 256
        from dataclasses import field
        @dataclasses.dataclass
        class DataArguments:
            max_length: int = field(default=$, metadata={"help": "of a sequence"})
            folder: str = "/d"
        @dataclasses.dataclass
        class TrainingArguments:
            learning_rate: float = 0.1
        data_args, training_args = DataArguments(), TrainingArguments()
        def preprocess(batch):
            return [one[: data_args.max_length] for one in batch]
        make_loader = lambda: DataLoader(D(data_args.folder, 3), collate_fn=preprocess)
    """,
    "another block size of a memmap": """
        # 8 | 16
        block_size = $
        batch_size = 4
        def get_batch(data):
            ix = torch.randint(len(data) - block_size, (batch_size,))
            return torch.stack([data[i : i + block_size] for i in ix])
        class Batches(IterableDataset):
            def __iter__(self):
                data = torch.arange(1000)
                while True:
                    yield get_batch(data)
        make_loader = lambda: DataLoader(Batches(), batch_size=None)
    """,
    "a key of keyword arguments": """
        # {'batch_size': 2} | {'batch_size': 3}
        kwargs = $
        kwargs.update({"num_workers": 1, "pin_memory": True})
        make_loader = lambda: DataLoader(D("/d", 30), **kwargs)
    """,
    "a batch size for each device": """
        # 2 | 4
        per_device, devices = $, 2
        make_loader = lambda: DataLoader(D("/d", 30), batch_size=per_device * devices)
    """,
    "what a registry was told": """
        # 1 | 2
        DATASETS = {}
        def register(name):
            def add(cls):
                DATASETS[name] = cls
                return cls
            return add
        @register("numbers")
        class Numbers(D):
            def __getitem__(self, index):
                return index + $
        def build(kind, **kw):
            return DATASETS[kind](**kw)
        make_loader = lambda: DataLoader(build("numbers", data="/d", size=3))
    """,
    "which class of a registry": """
        # a | b
        class A(D):
            pass
        class B(D):
            def __getitem__(self, index):
                return -index
        cfg = types.SimpleNamespace(kind="$", lr=0.1)
        def make_loader():
            classes = {"a": A, "b": B}
            if cfg.kind not in classes:
                raise ValueError(f"{cfg.kind} is none of {', '.join(classes)}")
            return DataLoader(classes[cfg.kind]("/d", 3))
    """,
    "a chain of elifs": """
        # small | large
        kind = "$"
        def make_loader():
            if kind == "small":
                size = 3
            elif kind == "large":
                size = 4
            else:
                raise ValueError(kind)
            print(f"{kind}: {size}")
            return DataLoader(D("/d", size))
    """,
    "a list of files": """
        # 3 | 4
        files = [f"/d/{number}.tar" for number in range($)]
        class Shards(IterableDataset):
            def __init__(self, files):
                self.files = sorted(files)
            def __iter__(self):
                yield from self.files
        make_loader = lambda: DataLoader(Shards(files))
    """,
    "labels in a dict": """
        # 'cat': 0, 'dog': 1 | 'cat': 1, 'dog': 0
        CLASS_TO_INDEX = {$}
        class E(D):
            def __getitem__(self, index):
                return CLASS_TO_INDEX["cat"]
        make_loader = lambda: DataLoader(E("/d", 3))
    """,
    "a mean and a deviation": """
        # 0.5 | 0.4
        MEAN, STD = ($, 0.5, 0.5), (0.2, 0.2, 0.2)
        def normalize(batch, mean=MEAN, std=STD):
            return [(one - mean[0]) / std[0] for one in batch]
        make_loader = lambda: DataLoader(D("/d", 3), collate_fn=normalize)
    """,
    "a mixed batch": """
        # 0.0 | 0.4
        alpha = $
        class Mixup:
            def __init__(self, alpha):
                self.alpha = alpha
            def __call__(self, batch):
                return [one * self.alpha for one in batch]
        def make_loader():
            mixup_active = alpha > 0
            collate_fn = None
            if mixup_active:
                collate_fn = Mixup(alpha)
            return DataLoader(D("/d", 3), collate_fn=collate_fn)
    """,
    "whether a mixed batch is made": """
        # 0.0 | 0.4
        alpha = $
        class Mixup:
            def __call__(self, batch):
                return [one * 2 for one in batch]
        def make_loader():
            mixup_active = alpha > 0
            collate_fn = Mixup() if mixup_active else None
            return DataLoader(D("/d", 3), collate_fn=collate_fn)
    """,
    "a data module's hyperparameters": """
        # 3 | 4
        class DataModule:
            def __init__(self, size, lr):
                self.hparams = types.SimpleNamespace(size=size, lr=lr)
                self.train = None
            def setup(self, stage=None):
                if stage in ("fit", None):
                    self.train = D("/d", self.hparams.size)
            def train_dataloader(self):
                self.setup("fit")
                return DataLoader(self.train)
        module = DataModule(size=$, lr=0.1)
        make_loader = module.train_dataloader
    """,
    "a cell that was run again": """
        # x + 1 | x + 2
        def transform(x):
            return $
        ds = D("/d", 3)
        ds.transform = transform
        class E(D):
            def __getitem__(self, index):
                return self.transform(index)
        ds.__class__ = E
        make_loader = lambda: DataLoader(ds)
    """,
    "a seed that splits": """
        # 1 | 2
        seed = $
        def make_loader():
            g = torch.Generator()
            g.manual_seed(seed)
            train, val = torch.utils.data.random_split(D("/d", 10), [8, 2], generator=g)
            return DataLoader(train)
    """,
    "a seed that shuffles": """
        # 1 | 2
        cfg = types.SimpleNamespace(seed=$, lr=0.1)
        def make_loader():
            torch.manual_seed(cfg.seed)
            return DataLoader(D("/d", 10), shuffle=True)
    """,
    "a subset by a share": """
        # 0.1 | 0.5
        share = $
        def make_loader():
            ds = D("/d", 100)
            if share < 1:
                ds = Subset(ds, range(int(len(ds) * share)))
            return DataLoader(ds)
    """,
    "an environment variable that decides": """
        # 0 | 1
        os.environ["FL_DEBUG"] = "$"
        def make_loader():
            size = 3 if os.environ.get("FL_DEBUG") == "1" else 4
            return DataLoader(D("/d", size))
    """,
    "a wrapped dataset": """
        # 1 | 2
        class Wrapper(Dataset):
            def __init__(self, inner, **options):
                self.inner, self.options = inner, options
            def __len__(self):
                return len(self.inner)
            def __getattr__(self, name):
                return getattr(self.inner, name)
            def __getitem__(self, index):
                return self.inner[index] * self.options.get("scale", 1)
        scale = $
        make_loader = lambda: DataLoader(Wrapper(D("/d", 3), scale=scale, lr=args.lr))
    """,
    "a lambda in a dict": """
        # 1 | 2
        STEPS = {"scale": lambda x: x * $, "shift": lambda x: x + 1}
        def collate(batch):
            for name in ("scale", "shift"):
                batch = STEPS[name](batch)
            return batch
        make_loader = lambda: DataLoader(D("/d", 3), collate_fn=collate)
    """,
}
