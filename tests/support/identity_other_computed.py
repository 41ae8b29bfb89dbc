"""Scripts that share a loader: what is computed, collected and chosen from values."""

from __future__ import annotations

# Each has two versions, told apart by what stands for $: the two values of its first line.
OTHER_COMPUTED = {
    "a generator expression": """
        # 1 | 2
        n = $
        make_loader = lambda: [x for x in (np.zeros(3) for _ in range(n))]
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
    "a value that goes through a generator": """
        # 1 | 2
        N = $
        def sizes():
            for n in range(3):
                yield n + N
        make_loader = lambda: [np.zeros(n) for n in sizes()]
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
    "the rest of a list": """
        # 1 | 2
        xs = [1, $, 3]

        def make_loader():
            a, *b = xs
            return [np.zeros(b[0])]
    """,
    "which way a list is sorted": """
        # 1 | 2
        N = $
        make_loader = lambda: [np.zeros(x) for x in sorted([1, 2], reverse=N > 1)]
    """,
    "a slice of a list made inside": """
        # 1 | 2
        N = $
        make_loader = lambda: [np.zeros(x) for x in [1, 2, 3][:N]]
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
}
