"""Scripts that share a loader: many ways to change what it loads."""

from __future__ import annotations

# Each has two versions, told apart by what stands for $: the two values of its first line.
OTHER = {
    "a captured dataset": """
        # 100 | 101
        ds = D('/data', $)
        make_loader = lambda: DataLoader(ds)
    """,
    "a literal": """
        # 100 | 101
        make_loader = lambda: DataLoader(D('/data', $))
    """,
    "a helper's source": """
        # 1 | 2
        def f(x):
            return x + $
        def g(x):
            return f(x)
        make_loader = lambda: DataLoader(D('/data', 3), collate_fn=g)
    """,
    "a global constant": """
        # 1 | 2
        N = $
        def make_loader():
            return DataLoader(D('/data', N))
    """,
    "a default argument": """
        # 1 | 2
        N = $
        def make_loader(n=N):
            return DataLoader(D('/data', n))
    """,
    "a partial's argument": """
        # 1 | 2
        def build(n):
            return DataLoader(D('/data', n))
        make_loader = functools.partial(build, n=$)
    """,
    "a bound method's object": """
        # 1 | 2
        class T:
            def __init__(self, n):
                self.n = n
            def make(self):
                return DataLoader(D('/data', self.n))
        make_loader = T($).make
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
    "a transform's captured value": """
        # 1 | 2
        def scale(k):
            return lambda x: x * k
        collate = scale($)
        make_loader = lambda: DataLoader(D('/d', 3), collate_fn=collate)
    """,
    "a base class": """
        # 1 | 2
        class A(Dataset):
            def __getitem__(self, i):
                return i + $
        class B(A):
            def __len__(self):
                return 3
        make_loader = lambda: DataLoader(B())
    """,
    "a class attribute": """
        # 1 | 2
        class A(D):
            extra = $
            def __len__(self):
                return self.size + self.extra
        make_loader = lambda: DataLoader(A('/d', 3))
    """,
    "a patched method": """
        # lambda self, i: i | lambda self, i: -i
        class A(D):
            pass
        A.__getitem__ = $
        make_loader = lambda: DataLoader(A('/d', 3))
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
    "a function of a registry, by name": """
        # a | b
        def a():
            return D('/a', 3)
        def b():
            return D('/b', 3)
        MAKE = {'a': a, 'b': b}
        kind = '$'
        make_loader = lambda: DataLoader(MAKE[kind]())
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
    "a property": """
        # 1 | 2
        class A(D):
            @property
            def n(self):
                return self.size + N
            def __len__(self):
                return self.n
        N = $
        make_loader = lambda: DataLoader(A('/d', 3))
    """,
    "code without source": """
        # 1 | 2
        make_loader = eval('lambda: [np.zeros($)]')
    """,
    "a value that code without source reads": """
        # 1 | 2
        cfg = types.SimpleNamespace(n=$, lr=0)
        make_loader = eval('lambda: [np.zeros(cfg.n)]')
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
    "a default of a dataclass": """
        # 1 | 2
        @dataclasses.dataclass
        class A(Dataset):
            n: int = $
            def __len__(self):
                return self.n
            def __getitem__(self, i):
                return i
        make_loader = lambda: DataLoader(A())
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
    "collate as class instance": """
        # 1 | 2
        class C:
            def __init__(self, p):
                self.p = p
            def __call__(self, x):
                return [self.p] * len(x)
        c = C($)
        make_loader = lambda: DataLoader(D("/d", 3), collate_fn=c)
    """,
    "collate class made inside": """
        # 1 | 2
        class C:
            def __init__(self, p):
                self.p = p
            def __call__(self, x):
                return [self.p] * len(x)
        N = $
        make_loader = lambda: DataLoader(D("/d", 3), collate_fn=C(N))
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
    "batch_sampler user": """
        # 1 | 2
        class B:
            def __init__(self, n):
                self.n = n
            def __iter__(self):
                yield list(range(self.n))
            def __len__(self):
                return 1
        b = B($)
        make_loader = lambda: DataLoader(D("/d", 9), batch_sampler=b)
    """,
    "a generator expression": """
        # 1 | 2
        n = $
        make_loader = lambda: [x for x in (np.zeros(3) for _ in range(n))]
    """,
    "lambda default": """
        # 1 | 2
        n = $
        make_loader = lambda n=n: DataLoader(D("/d", n))
    """,
    "closure counter": """
        # 1 | 2
        def outer(n):
            def mid():
                def inner():
                    return D("/d", n)
                return inner
            return lambda: DataLoader(mid()())
        make_loader = outer($)
    """,
    "decorator argument": """
        # 1 | 2
        def repeat(k):
            def deco(f):
                def w(*a):
                    return [f(*a) for _ in range(k)]
                return w
            return deco
        N = $
        @repeat(N)
        def one():
            return np.zeros(3)
        make_loader = lambda: one()
    """,
    "singledispatch": """
        # 1 | 2
        @functools.singledispatch
        def load(x):
            return x
        @load.register
        def _(x: int):
            return x + $
        make_loader = lambda: [load(3)]
    """,
    "static method": """
        # 1 | 2
        class A:
            @staticmethod
            def f(x):
                return x + $
        make_loader = lambda: DataLoader(D("/d", 3), collate_fn=A.f)
    """,
    "a registry of classes": """
        # 1 | 2
        REG = []
        class A:
            def __init_subclass__(cls):
                REG.append(cls)
        class B(A):
            def get(self):
                return D("/d", $)
        make_loader = lambda: DataLoader(REG[0]().get())
    """,
    "map with a lambda": """
        # 1 | 2
        n = $
        make_loader = lambda: list(map(lambda i: np.zeros(i + n), range(3)))
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
    "a subclass of a library's dataset": """
        # 1 | 2
        k = $
        class V(Subset):
            def __getitem__(self, i):
                return super().__getitem__(i) + k
            def __getitems__(self, ii):
                return [self[i] for i in ii]
        v = V(D("/d", 9), [1, 2])
        make_loader = lambda: DataLoader(v)
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
    "method monkeypatched on instance": """
        # 1 | 2
        d = D("/d", 3)
        d.extra = $
        D.__getitem__ = lambda self, i: i + self.extra
        make_loader = lambda: DataLoader(d)
    """,
    "super chain field": """
        # 1 | 2
        class P(Dataset):
            def __init__(self, n):
                self.n = n
            def __len__(self):
                return self.n
        class Q(P):
            def __init__(self, n):
                super().__init__(n * 2)
            def __getitem__(self, i):
                return i
        N = $
        make_loader = lambda: DataLoader(Q(N))
    """,
    "a function by its name": """
        # zeros | ones
        kind = "$"
        make_loader = lambda: [getattr(np, kind)(3)]
    """,
    "a function chosen outside": """
        # a | b
        def a():
            return D("/a", 1)
        def b():
            return D("/b", 1)
        make = $
        make_loader = lambda: DataLoader(make())
    """,
    "one of two closures of one function": """
        # 2.0 | 3.0
        scale = lambda k: (lambda x: x * k)
        class Compose:
            def __init__(self, steps):
                self.steps = steps
            def __call__(self, x):
                for one in self.steps:
                    x = one(x)
                return x
        c = Compose([scale($), scale(1.0)])
        make_loader = lambda: DataLoader(D("/d", 3), collate_fn=c)
    """,
    "the order of two closures": """
        # 2.0, 1.0, 1.0 | 2.0, 2.0, 1.0
        scale = lambda k: (lambda x: x * k)
        fs = [scale(k) for k in ($)]
        make_loader = lambda: [f(3) for f in fs]
    """,
    "one of many lambdas with defaults": """
        # 1, 2, 3 | 4, 2, 3
        fs = [lambda x, k=k: x * k for k in ($)]
        make_loader = lambda: DataLoader(D("/d", 3), collate_fn=functools.partial(map, fs))
    """,
    "two bound methods of one class": """
        # 1 | 2
        class S:
            def __init__(self, k):
                self.k = k
            def scale(self, x):
                return x * self.k
        first, second = S($).scale, S(5).scale
        make_loader = lambda: DataLoader(D("/d", 3), collate_fn=lambda x: second(first(x)))
    """,
    "a dict of closures": """
        # 1 | 2
        def scale(k):
            def apply(x):
                return x * k
            return apply
        steps = {"a": scale($), "b": scale(9)}
        make_loader = lambda: DataLoader(D("/d", 3), collate_fn=lambda x: steps["a"](steps["b"](x)))
    """,
    "two local datasets": """
        # 1 | 2
        def ds(n):
            class Local(Dataset):
                def __len__(self):
                    return n
                def __getitem__(self, i):
                    return i + n
            return Local()
        both = torch.utils.data.ConcatDataset([ds($), ds(7)])
        make_loader = lambda: DataLoader(both)
    """,
    "functions that are reduced to one": """
        # 1 | 2
        scale = lambda k: (lambda x: x * k)
        all_of = functools.reduce(lambda f, g: (lambda x: g(f(x))), [scale($), scale(3), scale(4)])
        make_loader = lambda: DataLoader(D("/d", 3), collate_fn=all_of)
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
    "a copy of a list": """
        # 1 | 2
        N = $
        def make_loader():
            xs = [N]
            return [np.zeros(n) for n in xs.copy()]
    """,
    "a union of sets": """
        # 1 | 2
        N = $
        make_loader = lambda: [np.zeros(n) for n in {1}.union({N})]
    """,
    "what is removed from a list": """
        # 1 | 2
        N = $
        def make_loader():
            xs = [1, 2, 3]
            xs.remove(N)
            return [np.zeros(n) for n in xs]
    """,
    "how a list is sorted": """
        # 1 | -1
        def by(x):
            return x * $
        def make_loader():
            files = [1, 2, 3]
            files.sort(key=by)
            return [np.zeros(n) for n in files]
    """,
    "a default that is set": """
        # 1 | 2
        N = $
        def make_loader():
            kw = {"data": "/d"}
            kw.setdefault("size", N)
            return DataLoader(D(**kw))
    """,
    "a repr": """
        # 1 | 2
        N = $
        make_loader = lambda: DataLoader(D(repr(N), 3))
    """,
    "the type of an object": """
        # 1 | 2
        class E(D):
            def __len__(self):
                return $
        old = E("/d", 3)
        make_loader = lambda: DataLoader(type(old)("/d", 3))
    """,
    "a long chain of calls": """
        # 1 | 2
        N = $
        text = "def f0():\\n    return N\\n"
        for i in range(60):
            text += f"def f{i + 1}():\\n    return f{i}()\\n"
        import linecache
        linecache.cache["<chain $>"] = (len(text), None, text.splitlines(True), "<chain $>")
        exec(compile(text, "<chain $>", "exec"))
        make_loader = lambda: DataLoader(D("/d", f60()))
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
    "a function by a computed name": """
        # 1 | 2
        class Maker:
            def load_small(self):
                return D("/d", $)
            def make(self):
                return DataLoader(getattr(self, "load_" + kind)())
        kind = "small"
        make_loader = Maker().make
    """,
    "which function of globals": """
        # small | large
        def small():
            return D("/d", 1)
        def large():
            return D("/d", 2)
        kind = "$"
        make_loader = lambda: DataLoader(globals()[kind]())
    """,
    "the source of a function of globals": """
        # 1 | 2
        def small():
            return D("/d", $)
        kind = "small"
        make_loader = lambda: DataLoader(globals()[kind]())
    """,
    "the source of a function that is evaluated": """
        # 1 | 2
        def small():
            return D("/d", $)
        kind = "small"
        make_loader = lambda: DataLoader(eval(kind)())
    """,
    "a step that a library calls by name": """
        # 1 | 2
        class Step:
            def transform(self, x):
                return x * $
        step = Step()
        make_loader = lambda: DataLoader(D("/d", 3), collate_fn=functools.partial(max, step))
    """,
    "a method by name": """
        # 1 | 2
        import operator
        class Part:
            def load(self):
                return D("/d", $)
        parts = [Part()]
        make_loader = lambda: [
            DataLoader(one) for one in map(operator.methodcaller("load"), parts)
        ]
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
    "a computed size": """
        # 1 | 2
        N = $
        def make_loader():
            n = N * 2 + 1
            m = -n if n > 3 else f"{n:3d}"
            return DataLoader(D("/d", int(str(m).strip())))
    """,
    "a condition on something computed": """
        # 1 | 2
        N = $
        make_loader = lambda: DataLoader(D("/d", 3 if N * 2 > 3 else 4))
    """,
    "a loop until something computed": """
        # 1 | 2
        N = $
        def make_loader():
            n = 0
            while n < N * 3:
                n += 1
            return DataLoader(D("/d", n))
    """,
    "an attribute of something computed": """
        # /a | /b
        root = "$"
        def make_loader():
            found = (pathlib.Path(root) / "train").parent.name
            return DataLoader(D(found.upper(), 3))
    """,
    "what a library makes of it": """
        # 1 | 2
        import json
        text = '{"size": $}'
        def make_loader():
            size = json.loads(text)["size"]
            return DataLoader(D("/d", size))
    """,
    "a value that goes through a generator": """
        # 1 | 2
        N = $
        def sizes():
            for n in range(3):
                yield n + N
        make_loader = lambda: [np.zeros(n) for n in sizes()]
    """,
    "an attribute of a class made inside": """
        # 1 | 2
        N = $
        def make_loader():
            class Inner(Dataset):
                size = N
                def __len__(self):
                    return self.size
                def __getitem__(self, index):
                    return index
            return DataLoader(Inner())
    """,
    "how often something is repeated": """
        # 1 | 2
        N = $
        make_loader = lambda: list(map(lambda i: np.zeros(3), range(N)))
    """,
    "how an object is shown": """
        # 1 | 2
        class E:

            def __str__(s):
                return 'x$'
        e = E()
        make_loader = lambda: DataLoader(D(str(e), 3))
    """,
    "how an object is formatted": """
        # 1 | 2
        class E:

            def __str__(s):
                return 'x$'
        e = E()
        make_loader = lambda: DataLoader(D(f'{e}', 3))
    """,
    "which element goes": """
        # 1 | 2
        N = $

        def make_loader():
            xs = [1, 2, 3]
            del xs[N]
            return [np.zeros(x) for x in xs]
    """,
    "what an error carries": """
        # 1 | 2
        N = $

        class E(Exception):

            def __init__(s, n):
                s.n = n

        def make_loader():
            try:
                raise E(N)
            except E as e:
                return [np.zeros(e.n)]
    """,
    "the truth of an object": """
        # 1 | 2
        class C:

            def __bool__(s):
                return $ > 1
        c = C()
        make_loader = lambda: [np.zeros(1 if c else 2)]
    """,
    "a metaclass": """
        # 1 | 2
        class M(type):

            def __call__(cls, *a):
                return D('/d', $)

        class C(metaclass=M):
            pass
        make_loader = lambda: DataLoader(C())
    """,
    "a condition in a comprehension": """
        # 1 | 2
        kind = '$'
        make_loader = lambda: [np.zeros(i) for i, k in ((1, '1'), (2, '2')) if k == kind]
    """,
    "a list in a condition": """
        # 1 | 2
        kinds = ['$']
        make_loader = lambda: [np.zeros(i) for i, k in ((1, '1'), (2, '2')) if k in kinds]
    """,
    "an attribute that is set inside": """
        # 1 | 2
        N = $

        class C:
            pass

        def make_loader():
            c = C()
            c.n = N
            return [np.zeros(c.n)]
    """,
    "a variable of an outer function": """
        # 1 | 2
        N = $

        def make_loader():
            n = 0

            def s():
                nonlocal n
                n = N
            s()
            return [np.zeros(n)]
    """,
    "the source of an operator": """
        # 1 | 2
        class E:

            def __init__(s, n):
                s.n = n

            def __add__(s, o):
                return s.n + o + $
        e = E(1)
        make_loader = lambda: [np.zeros(e + 1)]
    """,
    "what a context gives": """
        # 1 | 2
        import contextlib
        N = $

        @contextlib.contextmanager
        def c():
            yield N

        def make_loader():
            with c() as n:
                return [np.zeros(n)]
    """,
    "a value that is printed and used": """
        # 1 | 2
        N = $

        def say(x):
            print(x)
            return x
        make_loader = lambda: [np.zeros(say(N))]
    """,
    "the rest of a list": """
        # 1 | 2
        xs = [1, $, 3]

        def make_loader():
            a, *b = xs
            return [np.zeros(b[0])]
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
    "which way a list is sorted": """
        # 1 | 2
        N = $
        make_loader = lambda: [np.zeros(x) for x in sorted([1, 2], reverse=N > 1)]
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
    "a slice of a list made inside": """
        # 1 | 2
        N = $
        make_loader = lambda: [np.zeros(x) for x in [1, 2, 3][:N]]
    """,
    "the source of an iterator": """
        # 1 | 2
        class C:

            def __iter__(s):
                return iter([$])
        make_loader = lambda: [np.zeros(x) for x in C()]
    """,
    "setattr": """
        # 1 | 2
        N = $

        class C:
            pass

        def make_loader():
            c = C()
            setattr(c, 'n', N)
            return [np.zeros(c.n)]
    """,
}
