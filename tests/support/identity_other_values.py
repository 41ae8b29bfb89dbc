"""Scripts that share a loader: values that the loader reads."""

from __future__ import annotations

# Each has two versions, told apart by what stands for $: the two values of its first line.
OTHER_VALUES = {
    "a captured dataset": """
        # 100 | 101
        ds = D('/data', $)
        make_loader = lambda: DataLoader(ds)
    """,
    "a literal": """
        # 100 | 101
        make_loader = lambda: DataLoader(D('/data', $))
    """,
    "a global constant": """
        # 1 | 2
        N = $
        def make_loader():
            return DataLoader(D('/data', N))
    """,
    "an environment variable": """
        # 1 | 2
        os.environ['FL_SIZE'] = '$'
        make_loader = lambda: DataLoader(D('/d', int(os.environ['FL_SIZE'])))
    """,
    "an environment variable with a default": """
        # 1 | 2
        os.environ['FL_SIZE'] = '$'
        class E(D):
            def __len__(self):
                return int(os.environ.get('FL_SIZE', 3))
        make_loader = lambda: DataLoader(E('/d', 3))
    """,
    "a tensor": """
        # 1 | 2
        data = TensorDataset(torch.arange(10) + $)
        make_loader = lambda: DataLoader(data)
    """,
    "an array": """
        # 1 | 2
        data = np.arange(10) * $
        make_loader = lambda: [data]
    """,
    "a dtype": """
        # 'i4' | 'f4'
        data = np.zeros(10, $)
        make_loader = lambda: [data]
    """,
    "a subset's indices": """
        # 10 | 11
        part = Subset(D('/d', 30), list(range($)))
        make_loader = lambda: DataLoader(part)
    """,
    "a sampler's weights": """
        # 2.0 | 3.0
        from torch.utils.data import WeightedRandomSampler
        sampler = WeightedRandomSampler([1.0, $], 2)
        make_loader = lambda: DataLoader(D('/d', 2), sampler=sampler)
    """,
    "a path": """
        # /a | /b
        root = pathlib.Path('$')
        make_loader = lambda: DataLoader(D(root, 3))
    """,
    "an enum": """
        # A | B
        class Split(enum.Enum):
            A = 1
            B = 2
        split = Split.$
        make_loader = lambda: DataLoader(D(split, 3))
    """,
    "a list that was filled": """
        # /b | /c
        roots = ['/a']
        roots.append('$')
        make_loader = lambda: DataLoader(D(roots, 3))
    """,
    "a seeded generator": """
        # 1 | 2
        g = torch.Generator().manual_seed($)
        make_loader = lambda: DataLoader(D('/d', 3), shuffle=True, generator=g)
    """,
    "a captured loader's batch size": """
        # 2 | 3
        inner = DataLoader(D('/d', 30), batch_size=$)
        make_loader = lambda: inner
    """,
    "a dict's missing entry": """
        #  | 'n': 3
        cfg = {$}
        make_loader = lambda: DataLoader(D('/d', cfg.get('n', 3)))
    """,
    "an argument in a loop": """
        # '/a' | '/a', '/b'
        roots = [$]
        def make_loader():
            parts = [D(r, 3) for r in roots]
            return DataLoader(torch.utils.data.ConcatDataset(parts))
    """,
    "a slot": """
        # 1 | 2
        class Z(Dataset):
            __slots__ = ("n",)
            def __init__(self, n):
                self.n = n
            def __len__(self):
                return self.n
            def __getitem__(self, i):
                return i
        z = Z($)
        make_loader = lambda: DataLoader(z)
    """,
    "a module's weights": """
        # 1. | 2.
        m = torch.nn.Linear(2, 2)
        torch.nn.init.constant_(m.weight, $)
        torch.nn.init.constant_(m.bias, 0)
        def f(b):
            return m(b)
        make_loader = lambda: DataLoader(D("/d", 3), collate_fn=f)
    """,
    "global mutated by function": """
        # 1 | 2
        CFG = {}
        def setup():
            CFG["n"] = $
        setup()
        make_loader = lambda: DataLoader(D("/d", CFG["n"]))
    """,
    "an environment variable in a helper": """
        # /a | /b
        os.environ["FL_ROOT"] = "$"
        def root():
            return os.getenv("FL_ROOT", "/x")
        make_loader = lambda: DataLoader(D(root(), 3))
    """,
    "default dict factory": """
        # 1 | 2
        t = collections.defaultdict(int, {"a": $})
        make_loader = lambda: DataLoader(D(t, 3))
    """,
    "ordered order": """
        # 2,1 | 1,2
        t = [$]
        make_loader = lambda: DataLoader(D("/d", 3), sampler=t)
    """,
    "nested list of tensors": """
        # 1 | 2
        t = [[torch.tensor([$])]]
        make_loader = lambda: t
    """,
    "string format": """
        # /a | /b
        root = "$"
        make_loader = lambda: DataLoader(D(f"{root}/train", 3))
    """,
    "a seeded NumPy generator": """
        # 1 | 2
        rng = np.random.default_rng($)
        make_loader = lambda: [rng.permutation(9)]
    """,
    "a long list": """
        # 1 | 2
        t = list(range(5000)) + [$]
        make_loader = lambda: DataLoader(D("/d", 3), sampler=t)
    """,
    "dict subclass Counter": """
        # aab | abb
        c = collections.Counter("$")
        make_loader = lambda: DataLoader(D(c, 3))
    """,
    "a seeded split": """
        # 1 | 2
        s = $
        make_loader = lambda: DataLoader(
            torch.utils.data.random_split(
                D("/d", 9), [4, 5], generator=torch.Generator().manual_seed(s)
            )[0]
        )
    """,
    "worker_init_fn": """
        # 1 | 2
        b = $
        def w(i):
            np.random.seed(b + i)
        make_loader = lambda: DataLoader(D("/d", 9), worker_init_fn=w)
    """,
    "one of many objects": """
        # 3 | 4
        @dataclasses.dataclass
        class Sample:
            path: str
            label: int
        ds = D("/d", 3)
        ds.samples = [Sample(f"/d/{i}", i * $) for i in range(3000)]
        class S(D):
            def __getitem__(self, i):
                return self.samples[i].label
        ds.__class__ = S
        make_loader = lambda: DataLoader(ds)
    """,
    "attributes by name": """
        # 1 | 2
        cfg = types.SimpleNamespace(data="/d", size=$)
        make_loader = lambda: DataLoader(D(**{k: getattr(cfg, k) for k in ("data", "size")}))
    """,
    "a slice of a memmap": """
        # :100 | 100:200
        mm = np.memmap("/proc/self/exe", dtype=np.uint8, mode="r")[$]
        make_loader = lambda: [mm]
    """,
    "a repr": """
        # 1 | 2
        N = $
        make_loader = lambda: DataLoader(D(repr(N), 3))
    """,
    "the order of a dict that is iterated": """
        # a=1, b=2 | b=2, a=1
        parts = dict($)
        make_loader = lambda: [np.zeros(n) for n in parts.values()]
    """,
    "a field with the name of an option": """
        # 1 | 2
        class Steps:
            pass
        steps = Steps()
        steps.in_order, steps.timeout = $, 3
        class S(D):
            def __len__(self):
                return steps.in_order
        other = types.SimpleNamespace(in_order=$)
        make_loader = lambda: DataLoader(S([other], 3))
    """,
    "a part of a state with the name of an option": """
        # 1 | 2
        other = [types.SimpleNamespace(in_order=$)]
        make_loader = lambda: DataLoader(D(other, 3))
    """,
    "a target in a configuration": """
        # 1 | 2
        import importlib
        module = types.ModuleType("targets_fl")
        sys.modules["targets_fl"] = module
        class E(D):
            def __len__(self):
                return $
        module.E = E
        def instantiate(cfg):
            where, name = cfg["_target_"].rsplit(".", 1)
            rest = {k: v for k, v in cfg.items() if k != "_target_"}
            return getattr(importlib.import_module(where), name)(**rest)
        cfg = {"_target_": "targets_fl.E", "data": "/d", "size": 3}
        make_loader = lambda: DataLoader(instantiate(cfg))
    """,
    "what a library makes of it": """
        # 1 | 2
        import json
        text = '{"size": $}'
        def make_loader():
            size = json.loads(text)["size"]
            return DataLoader(D("/d", size))
    """,
    "a value that is printed and used": """
        # 1 | 2
        N = $

        def say(x):
            print(x)
            return x
        make_loader = lambda: [np.zeros(say(N))]
    """,
    "the order of a dict in a loop": """
        # 1 | 2
        steps = dict(a=1, b=2) if $ == 1 else dict(b=2, a=1)

        def make_loader():
            out = []
            for k, v in steps.items():
                out.append(np.zeros(v))
            return out
    """,
    "a seed made inside": """
        # 1 | 2
        import random
        N = $

        def make_loader():
            xs = [1, 2]
            random.Random(N).shuffle(xs)
            return [np.zeros(x) for x in xs]
    """,
}
