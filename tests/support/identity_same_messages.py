"""Scripts that share a loader: what they print, log and write differs, what they load doesn't."""

from __future__ import annotations

SAME_MESSAGES = {
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
    "times": """
        import datetime
        NOW = datetime.datetime.now()

        def make_loader():
            print(datetime.datetime.now() - NOW, NOW.isoformat())
            return DataLoader(D(args.data, args.size))
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
    "a condition in a print": """
        def make_loader():
            print("fast" if args.lr > 0.2 else "slow")
            print("run", "a" if args.out == "runs/a" else "b", sep="," if args.seed else " ")
            return DataLoader(D(args.data, args.size))
    """,
    "a condition in an f-string": """
        def make_loader():
            print(f"{'fast' if args.lr > 0.2 else 'slow'} into {args.out or 'nowhere'}")
            print("%s" % ("fast" if args.lr > 0.2 else "slow"))
            return DataLoader(D(args.data, args.size))
    """,
    "a condition in a log call": """
        import logging, warnings
        log = logging.getLogger(__name__)
        def make_loader():
            log.info("rate: %s", "fast" if args.lr > 0.2 else "slow")
            logging.warning("with a seed" if args.seed else "without a seed")
            warnings.warn("none" if args.out is None else args.out)
            return DataLoader(D(args.data, args.size))
    """,
    "a message that is chosen before": """
        def make_loader():
            word = "fast" if args.lr > 0.2 else "slow"
            if args.seed:
                seeded = f"seed {args.seed}"
            else:
                seeded = "no seed"
            message = word.upper() + ", " + seeded
            print(message)
            return DataLoader(D(args.data, args.size))
    """,
    "branches that only print": """
        import logging
        log = logging.getLogger("train")
        def make_loader():
            if args.lr > 0.2:
                print("fast")
                log.warning("unstable at %s", args.lr)
            elif "b" in args.out:
                print("slow,", "seeded" if args.seed else "not seeded")
            else:
                pass
            if args.seed:
                if args.lr > 0.2:
                    message = "both"
                else:
                    message = "a seed"
                print(message)
            return DataLoader(D(args.data, args.size))
    """,
    "a helper with a condition in its message": """
        def describe(args, verbose=True):
            return ("fast" if args.lr > 0.2 else "slow") + (f" {args.out}" if args.seed else "")
        def announce(args):
            if args.seed != 0:
                print("seeded")
            print(describe(args))
        def make_loader():
            announce(args)
            return DataLoader(D(args.data, args.size))
    """,
    "checks of the options": """
        def make_loader():
            assert args.lr > 0, "a learning rate must be positive"
            if args.seed < 0 or args.lr > 10:
                raise ValueError(f"odd options: {args}")
            if not args.out:
                print("no output folder")
                raise SystemExit(2)
            return DataLoader(D(args.data, args.size))
    """,
    "a short circuit that prints": """
        def make_loader():
            args.seed and print("seeded")
            print(args.out and f"writes to {args.out}", args.seed or "no seed")
            print("fast") if args.lr > 0.2 else None
            return DataLoader(D(args.data, args.size))
    """,
    "a match that prints": """
        def make_loader():
            match args.out:
                case "runs/a":
                    print("the first")
                case _:
                    print("another one")
            return DataLoader(D(args.data, args.size))
    """,
    "a loop that prints some": """
        def make_loader():
            for key, value in vars(args).items():
                if value:
                    print(f"{key}: {value}")
                else:
                    print(key, "is not set")
            return DataLoader(D(args.data, args.size))
    """,
    "a file with what was chosen": """
        import json
        def make_loader():
            text = json.dumps({"fast": args.lr > 0.2, "kind": "a" if args.seed else "b"})
            with open(os.path.join(args.out, "options.json"), "w") as file:
                file.write(text if args.seed else text + " ")
            return DataLoader(D(args.data, args.size))
    """,
}
