"""Scripts that share a loader: training scripts as people write them."""

from __future__ import annotations

SAME_SCRIPTS = {
    "a seed and an output folder in main": """
        def set_seed(seed):
            random.seed(seed)
            np.random.seed(seed)
            torch.manual_seed(seed)
        def main(args):
            set_seed(args.seed)
            folder = pathlib.Path(args.out) / f"lr{args.lr}-seed{args.seed}"
            model = torch.nn.Linear(2, 2)
            optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
            def make_loader():
                print(f"data for {folder}")
                return DataLoader(D(args.data, args.size), shuffle=True)
            return make_loader
        make_loader = main(args)
    """,
    "a trainer with a model": """
        class Trainer:
            def __init__(self, args):
                self.args = args
                self.cfg = {"lr": args.lr, "size": args.size, "out": args.out}
                self.model = torch.nn.Linear(2, 2)
                torch.nn.init.constant_(self.model.weight, args.lr)
                self.history = [args.lr]
            def make_dataset(self):
                return D(self.args.data, self.cfg["size"])
            def make_loader(self):
                return DataLoader(self.make_dataset(), num_workers=self.args.workers)
            def step(self):
                return self.args.lr
        trainer = Trainer(args)
        make_loader = trainer.make_loader
    """,
    "an experiment's name": """
        import time
        def make_loader():
            name = "-".join(["run", str(args.lr), str(args.seed), time.strftime("%Y%m%d")])
            folder = os.path.join(args.out, name)
            os.makedirs(folder, exist_ok=True)
            print("logs:", folder)
            return DataLoader(D(args.data, args.size))
    """,
    "a table of options": """
        def make_loader():
            print("\\n".join(f"{key:>10}: {value}" for key, value in sorted(vars(args).items())))
            print("Namespace:", args, repr(args), str(args), sep="\\n")
            return DataLoader(D(args.data, args.size))
    """,
    "a table of options that names some": """
        def make_loader():
            for name in vars(args):
                if not name.startswith("_"):
                    print(name, getattr(args, name))
            return DataLoader(D(args.data, args.size))
    """,
    "options saved beside the run": """
        import csv, json
        def save_options(args, folder):
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, "args.json"), "w") as file:
                json.dump(vars(args), file, indent=2, sort_keys=True)
            pathlib.Path(folder, "args.txt").write_text(str(args))
            with open(f"{folder}/rate.csv", "w", newline="") as file:
                csv.writer(file).writerow([args.lr, args.seed])
        def make_loader():
            if args.out:
                save_options(args, args.out)
            return DataLoader(D(args.data, args.size))
    """,
    "a writer of metrics": """
        class SummaryWriter:
            def __init__(self, folder):
                self.folder, self.count = folder, 0
            def add_scalar(self, name, value):
                self.count += 1
                with open(os.path.join(self.folder, "scalars.txt"), "a") as file:
                    file.write(f"{self.count} {name} {value}")
        writer = SummaryWriter(args.out)
        def make_loader():
            writer.add_scalar("lr", args.lr)
            return DataLoader(D(args.data, args.size))
    """,
    "only the first rank tells": """
        def is_main():
            return int(os.environ.get("RANK", "0")) == 0
        def make_loader():
            if is_main():
                print(f"lr {args.lr}, {'seeded' if args.seed else 'not seeded'}")
            return DataLoader(D(args.data, args.size))
    """,
    "arguments in groups": """
        group = {"data": ["size", "data"], "optim": ["lr", "seed"], "log": ["out"]}
        sections = {
            name: argparse.Namespace(**{key: getattr(args, key) for key in keys})
            for name, keys in group.items()
        }
        make_loader = lambda: DataLoader(D(sections["data"].data, sections["data"].size))
    """,
    "dataclasses as HF has them": """
        from dataclasses import dataclass, field
        from typing import Optional
        @dataclass
        class DataArguments:
            data: str = field(default="/d")
            size: Optional[int] = field(default=None, metadata={"help": "of the data"})
            def __post_init__(self):
                if self.size is None:
                    raise ValueError("a size is needed")
        @dataclass
        class TrainingArguments:
            learning_rate: float = 0.1
            output_dir: str = "out"
            dataloader_num_workers: int = 0
        data_args = DataArguments(args.data, args.size)
        training_args = TrainingArguments(args.lr, args.out, args.workers)
        class Trainer:
            def __init__(self, args, train_dataset):
                self.args, self.train_dataset = args, train_dataset
            def get_train_dataloader(self):
                if self.train_dataset is None:
                    raise ValueError("training requires a train_dataset")
                params = {"batch_size": 4, "num_workers": self.args.dataloader_num_workers}
                return DataLoader(self.train_dataset, **params)
        trainer = Trainer(training_args, D(data_args.data, data_args.size))
        make_loader = trainer.get_train_dataloader
    """,
    "dataclasses made by the loader": """
        @dataclasses.dataclass(frozen=True)
        class Config:
            size: int
            lr: float
            out: str
            @classmethod
            def from_args(cls, args):
                names = {one.name for one in dataclasses.fields(cls)}
                return cls(**{key: one for key, one in vars(args).items() if key in names})
        def make_loader():
            cfg = Config.from_args(args)
            return DataLoader(D("/d", cfg.size))
    """,
    "options as timm has them": """
        def resolve_data_config(args, defaults=None):
            new_config = dict(defaults or {"mean": 0.5})
            if args.get("size") is not None:
                new_config["size"] = args["size"]
            if args.get("data"):
                new_config["data"] = args["data"]
            return new_config
        def create_dataset(name, root, split="train", **kwargs):
            return D(os.path.join(root, name, split), kwargs["size"])
        def create_loader(dataset, input_size, is_training=False, use_prefetcher=True, workers=1):
            return DataLoader(dataset, num_workers=workers, drop_last=is_training)
        def make_loader():
            data_config = resolve_data_config(vars(args))
            print("data config:", data_config, "rate:", args.lr)
            dataset = create_dataset("folder", root=data_config["data"], size=data_config["size"])
            return create_loader(dataset, data_config["size"], True, workers=args.workers)
    """,
    "a configuration as Hydra has it": """
        class Node(dict):
            def __getattr__(self, name):
                if name not in self:
                    raise AttributeError(f"{name} is none of {list(self)}")
                value = self[name]
                return Node(value) if isinstance(value, dict) else value
        cfg = Node(
            data={"_target_": "D", "root": "/d", "size": args.size},
            optim={"lr": args.lr}, hydra={"run": {"dir": args.out}}, seed=args.seed,
        )
        def main(cfg):
            print(f"working in {cfg.hydra.run.dir}")
            return lambda: DataLoader(D(cfg.data.root, cfg.data.size))
        make_loader = main(cfg)
    """,
    "a configuration with overrides": """
        def apply(cfg, path, value):
            *sections, name = path.split(".")
            for section in sections:
                cfg = cfg.setdefault(section, {})
            cfg[name] = value
        cfg = {"data": {"root": "/d"}, "optim": {}}
        apply(cfg, "data.size", args.size)
        apply(cfg, "optim.lr", args.lr)
        apply(cfg, "log.folder", args.out)
        make_loader = lambda: DataLoader(D(cfg["data"]["root"], cfg["data"]["size"]))
    """,
    "globals as nanoGPT has them": """
        learning_rate, out_dir, block_size = args.lr, args.out, args.size
        config_keys = [
            k for k, v in globals().items()
            if not k.startswith("_") and isinstance(v, (int, float, bool, str))
        ]
        config = {k: globals()[k] for k in config_keys}
        def get_batch():
            data = torch.arange(1000)
            ix = torch.randint(len(data) - block_size, (4,))
            return torch.stack([data[i : i + block_size] for i in ix])
        class Batches(IterableDataset):
            def __iter__(self):
                while True:
                    yield get_batch()
        make_loader = lambda: DataLoader(Batches(), batch_size=None)
    """,
    "cells of a notebook": """
        cfg = dict(lr=args.lr, size=args.size, epochs=3, out=args.out)
        losses = [args.lr] * 3
        ds = D(args.data, cfg["size"])
        x = ds[0] * args.lr
        _ = losses[-1]
        def show(image):
            print(image, cfg["out"])
        make_loader = lambda: DataLoader(ds, batch_size=4)
    """,
    "transforms by conditions on the data's options": """
        def make_transform(args):
            steps = []
            if args.size > 10:
                steps.append(lambda x: x * 2)
            else:
                steps += [lambda x: x]
            if getattr(args, "verbose", False):
                print(steps)
            return steps
        class E(D):
            def __init__(self, args):
                super().__init__(args.data, args.size)
                self.steps = make_transform(args)
            def __getitem__(self, index):
                for step in self.steps:
                    index = step(index)
                return index
        make_loader = lambda: DataLoader(E(args))
    """,
    "a path made of some options": """
        def data_path(args, split="train"):
            name = f"{args.size}px" if args.size else "full"
            return os.path.join(args.data, name, split)
        def make_loader():
            path = data_path(args)
            if not os.path.isdir(args.out):
                print(f"no {args.out}: nothing is resumed")
            return DataLoader(D(path, 3))
    """,
    "a schedule beside the data": """
        class Experiment:
            def __init__(self, **options):
                self.options = options
                self.rates = [options["lr"] * 0.1**n for n in range(3)]
                self.loaders = {"train": self.make("train"), "val": self.make("val")}
            def make(self, split):
                return lambda: DataLoader(D(split, self.options["size"]))
        experiment = Experiment(**vars(args))
        make_loader = experiment.loaders["train"]
    """,
    "a decorator that times": """
        import time
        def timed(function):
            @functools.wraps(function)
            def wrapper(*given, **named):
                began = time.perf_counter()
                try:
                    return function(*given, **named)
                finally:
                    print(f"{function.__name__}: {time.perf_counter() - began}, lr {args.lr}")
            return wrapper
        @timed
        def build(args):
            return DataLoader(D(args.data, args.size))
        make_loader = lambda: build(args)
    """,
    "a progress bar": """
        def progress(each, text=""):
            for number, one in enumerate(each):
                if number % 10 == 0:
                    print(f"{text} {number}")
                yield one
        def make_loader():
            parts = []
            for root in progress([args.data], text=f"scanning for {args.out}"):
                parts.append(D(root, args.size))
            return DataLoader(torch.utils.data.ConcatDataset(parts))
    """,
    "a check of the folder to resume from": """
        def find_checkpoint(folder):
            found = sorted(pathlib.Path(folder).glob("*.pt"))
            return found[-1] if found else None
        checkpoint = find_checkpoint(args.out)
        def make_loader():
            if checkpoint is not None:
                print(f"resuming from {checkpoint}")
            return DataLoader(D(args.data, args.size))
    """,
    "a sweep's options": """
        sweep = {"lr": [0.1, 0.5], "seed": [0, 7]}
        trial = types.SimpleNamespace(number=args.seed, params={"lr": args.lr, "size": args.size})
        def objective(trial):
            rate = trial.params["lr"]
            print(f"trial {trial.number}: {'fast' if rate > 0.2 else 'slow'}")
            return lambda: DataLoader(D(args.data, trial.params["size"]))
        make_loader = objective(trial)
    """,
    "options checked by a helper": """
        class OptionError(ValueError):
            pass
        def check(args):
            if args.lr <= 0 or args.lr > 100:
                raise OptionError(f"--lr {args.lr} makes no sense")
            if args.seed is None:
                print("not seeded")
            return args
        make_loader = lambda: DataLoader(D(check(args).data, args.size))
    """,
    "wandb and its like": """
        import logging
        logger = logging.getLogger("train")
        logger.setLevel("WARNING")
        class Run:
            def __init__(self, **options):
                self.options = options
            def log(self, values):
                logger.info("%s", values)
        run = Run(project="p", config=vars(args))
        def make_loader():
            run.log({"lr": args.lr, "seeded": bool(args.seed)})
            if args.seed:
                run.log({"seed": args.seed})
            return DataLoader(D(args.data, args.size))
    """,
}
