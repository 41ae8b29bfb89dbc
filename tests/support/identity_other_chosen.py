"""Scripts that share a loader: what is done with a value that a condition has chosen."""

from __future__ import annotations

# Each has two versions, told apart by what stands for $: the two values of its first line.
OTHER_CHOSEN = {
    "comparison chain": """
        # 1 | 5
        n = $
        make_loader = lambda: DataLoader(D("/d", 3 if 0 < n < 3 else 4))
    """,
    "nested ifexp": """
        # 1 | 5
        n = $
        make_loader = lambda: DataLoader(D("/d", 3 if n == 2 else 4 if n == 1 else 5))
    """,
    "walrus in condition": """
        # 1 | 5
        n = $
        def make_loader():
            if (m := n * 2) > 3:
                print(m)
            return DataLoader(D("/d", m))
    """,
    "and chain value": """
        # 0 | 5
        n = $
        make_loader = lambda: DataLoader(D(n and "x" or "y", 3))
    """,
    "any over conds": """
        # 0 | 5
        n = $
        make_loader = lambda: DataLoader(D("/d", 3 if any([n > 1, False]) else 4))
    """,
    "dict dispatch by bool": """
        # 0 | 5
        n = $
        make_loader = lambda: DataLoader(D("/d", {True: 3, False: 4}[n > 1]))
    """,
    "list index by bool": """
        # 0 | 5
        n = $
        make_loader = lambda: DataLoader(D("/d", (3, 4)[n > 1]))
    """,
    "partial chosen": """
        # 0 | 5
        n = $
        def f(k):
            return D("/d", k)
        def make_loader():
            g = functools.partial(f, 3) if n else functools.partial(f, 4)
            return DataLoader(g())
    """,
    "lambda chosen": """
        # 0 | 5
        n = $
        def make_loader():
            g = (lambda x: x) if n else (lambda x: -x)
            return DataLoader(D("/d", 3), collate_fn=g)
    """,
    "super init chosen": """
        # 0 | 5
        n = $
        class E(D):
            def __init__(self):
                super().__init__("/a" if n else "/b", 3)
        make_loader = lambda: DataLoader(E())
    """,
    "yield chosen": """
        # 0 | 5
        n = $
        class It(IterableDataset):
            def __iter__(self):
                for i in range(3):
                    yield i if n else -i
        make_loader = lambda: DataLoader(It())
    """,
    "attr on chosen": """
        # 0 | 5
        n = $
        A = types.SimpleNamespace(v=3)
        B = types.SimpleNamespace(v=4)
        make_loader = lambda: DataLoader(D("/d", (A if n else B).v))
    """,
    "method on chosen str": """
        # 0 | 5
        n = $
        make_loader = lambda: DataLoader(D(("a" if n else "b").upper(), 3))
    """,
    "format of chosen": """
        # 0 | 5
        n = $
        make_loader = lambda: DataLoader(D("{}".format("a" if n else "b"), 3))
    """,
    "percent of chosen": """
        # 0 | 5
        n = $
        make_loader = lambda: DataLoader(D("%s" % ("a" if n else "b"), 3))
    """,
    "getenv chosen": """
        # 0 | 5
        n = $
        make_loader = lambda: DataLoader(
            D(os.getenv("A_FL" if n else "B_FL", "x" if n else "y"), 3)
        )
    """,
    "isinstance of chosen": """
        # 0 | 5
        n = $
        make_loader = lambda: DataLoader(D("/d", 3 if isinstance(1 if n else "a", int) else 4))
    """,
    "len of chosen": """
        # 0 | 5
        n = $
        make_loader = lambda: DataLoader(D("/d", len([1] if n else [1, 2])))
    """,
    "in chosen": """
        # 0 | 5
        n = $
        make_loader = lambda: DataLoader(D("/d", 3 if "a" in (["a"] if n else ["b"]) else 4))
    """,
    "is chosen": """
        # 0 | 5
        n = $
        make_loader = lambda: DataLoader(D("/d", 3 if (None if n else 1) is None else 4))
    """,
    "not chosen": """
        # 0 | 5
        n = $
        make_loader = lambda: DataLoader(D("/d", 3 if not (None if n else 1) else 4))
    """,
    "star chosen": """
        # 0 | 5
        n = $
        make_loader = lambda: DataLoader(D("/d", max(*([1, 2] if n else [3, 4]))))
    """,
    "dict star chosen": """
        # 0 | 5
        n = $
        make_loader = lambda: DataLoader(
            D(**({"data": "/a", "size": 1} if n else {"data": "/b", "size": 1}))
        )
    """,
    "sorted key chosen": """
        # 0 | 5
        n = $
        make_loader = lambda: [
            np.zeros(x) for x in sorted([1, 2], key=(lambda x: x) if n else (lambda x: -x))
        ]
    """,
    "map chosen": """
        # 0 | 5
        n = $
        make_loader = lambda: [
            np.zeros(x) for x in map((lambda x: x) if n else (lambda x: x + 1), [1, 2])
        ]
    """,
    "class chosen": """
        # 0 | 5
        n = $
        class A(D):
            pass
        class B(D):
            def __getitem__(self, i):
                return -i
        make_loader = lambda: DataLoader((A if n else B)("/d", 3))
    """,
    "kwargs.setdefault chosen": """
        # 0 | 5
        n = $
        def make_loader():
            kw = {}
            kw.setdefault("size", 3 if n else 4)
            return DataLoader(D("/d", kw["size"]))
    """,
}
