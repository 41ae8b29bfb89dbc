"""Scripts that share a loader: the user's functions and classes."""

from __future__ import annotations

# Each has two versions, told apart by what stands for $: the two values of its first line.
OTHER_CODE = {
    "a helper's source": """
        # 1 | 2
        def f(x):
            return x + $
        def g(x):
            return f(x)
        make_loader = lambda: DataLoader(D('/data', 3), collate_fn=g)
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
    "a metaclass": """
        # 1 | 2
        class M(type):

            def __call__(cls, *a):
                return D('/d', $)

        class C(metaclass=M):
            pass
        make_loader = lambda: DataLoader(C())
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
    "the source of an iterator": """
        # 1 | 2
        class C:

            def __iter__(s):
                return iter([$])
        make_loader = lambda: [np.zeros(x) for x in C()]
    """,
}
