"""Scripts that share a loader: conditions, and what is chosen by them."""

from __future__ import annotations

# Each has two versions, told apart by what stands for $: the two values of its first line.
OTHER_CONDITIONS = {
    "a conditional expression that is used": """
        # 0.1 | 0.5
        rate = $
        make_loader = lambda: DataLoader(D("fast" if rate > 0.2 else "slow", 3))
    """,
    "a conditional expression that is printed and used": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            kind = "fast" if rate > 0.2 else "slow"
            print(kind)
            return DataLoader(D(kind, 3))
    """,
    "a conditional expression inside of a path": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            root = f"/data/{'fast' if rate > 0.2 else 'slow'}/train"
            return DataLoader(D(root, 3))
    """,
    "a short circuit": """
        # 0 | 7
        seed = $
        make_loader = lambda: DataLoader(D("/d", seed and 3))
    """,
    "a default by or": """
        # None | '/e'
        root = $
        make_loader = lambda: DataLoader(D(root or "/d", 3))
    """,
    "a short circuit with an effect": """
        # 0 | 1
        flag = $
        def make_loader():
            parts = ["/a"]
            flag and parts.append("/b")
            return DataLoader(D(parts, 3))
    """,
    "a conditional expression with an effect": """
        # 0 | 1
        flag = $
        def make_loader():
            parts = ["/a"]
            parts.append("/b") if flag else None
            return DataLoader(D(parts, 3))
    """,
    "which of two functions is called": """
        # 0.1 | 0.5
        rate = $
        def small():
            return D("/d", 3)
        def large():
            return D("/d", 4)
        make_loader = lambda: DataLoader((small if rate > 0.2 else large)())
    """,
    "which attribute is read": """
        # 0.1 | 0.5
        rate = $
        cfg = types.SimpleNamespace(small=3, large=4)
        make_loader = lambda: DataLoader(D("/d", getattr(cfg, "small" if rate > 0.2 else "large")))
    """,
    "which key is read": """
        # 0.1 | 0.5
        rate = $
        cfg = {"small": 3, "large": 4}
        make_loader = lambda: DataLoader(D("/d", cfg["small" if rate > 0.2 else "large"]))
    """,
    "which object an attribute is set on": """
        # 0.1 | 0.5
        rate = $
        class C:
            n = 1
        def make_loader():
            a, b = C(), C()
            one = a if rate > 0.2 else b
            one.n = 5
            return [np.zeros(a.n)]
    """,
    "how two are unpacked": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            root, size = ("/a", 3) if rate > 0.2 else ("/b", 4)
            return DataLoader(D(root, size))
    """,
    "whether something is None": """
        # None | 1
        seed = $
        make_loader = lambda: DataLoader(D("/d", 3 if seed is None else 4))
    """,
    "whether something is None, in a variable": """
        # None | 1
        seed = $
        def make_loader():
            shuffle = seed is not None
            return DataLoader(D("/d", 3), shuffle=shuffle)
    """,
    "whether something is in a list": """
        # 1 | 2
        kind = $
        def make_loader():
            is_small = kind in (1, 3)
            return DataLoader(D("/d", 3), shuffle=is_small)
    """,
    "of which type something is": """
        # 1 | '1'
        kind = $
        def make_loader():
            is_number = isinstance(kind, int)
            size = 3 if is_number else 4
            return DataLoader(D("/d", size))
    """,
    "a field that a branch sets": """
        # 0.1 | 0.5
        rate = $
        class E(D):
            def __init__(self):
                super().__init__("/d", 3)
                self.scale = 1 if rate > 0.2 else 2
            def __getitem__(self, index):
                return index * self.scale
        make_loader = lambda: DataLoader(E())
    """,
    "a loop whose rounds a condition chooses": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            roots = ["/a", "/b"] if rate > 0.2 else ["/a"]
            return [np.zeros(3) for one in roots]
    """,
    "which of two methods is called": """
        # 0.1 | 0.5
        rate = $
        class Maker:
            def small(self):
                return D("/d", 3)
            def large(self):
                return D("/d", 4)
        def make_loader():
            maker = Maker()
            return DataLoader((maker.small if rate > 0.2 else maker.large)())
    """,
    "a condition in a dict comprehension": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            kw = {name: 4 for name in ("size", "other") if rate > 0.2}
            return DataLoader(D("/d", kw.get("size", 3)))
    """,
    "a condition in a generator expression": """
        # 0.1 | 0.5
        rate = $
        make_loader = lambda: DataLoader(D("/d", sum(n for n in (1, 2) if n > rate * 3)))
    """,
    "a condition of a condition": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            is_fast = rate > 0.2
            is_large = not is_fast
            size = 3 if is_large else 4
            root = "/a" if size == 3 else "/b"
            return DataLoader(D(root, 3))
    """,
    "a class attribute that is chosen": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            class E(D):
                scale = 1 if rate > 0.2 else 2
                def __getitem__(self, index):
                    return index * self.scale
            return DataLoader(E("/d", 3))
    """,
    "a default that is chosen": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            def collate(batch, scale=1 if rate > 0.2 else 2):
                return [one * scale for one in batch]
            return DataLoader(D("/d", 3), collate_fn=collate)
    """,
    "an element that is chosen": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            sizes = [3, 4]
            return DataLoader(D("/d", sizes[1 if rate > 0.2 else 0]))
    """,
    "arguments that are chosen": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            given = ("/a", 3) if rate > 0.2 else ("/b", 4)
            return DataLoader(D(*given))
    """,
    "a context that is entered or not": """
        # 0.1 | 0.5
        rate = $
        import contextlib
        class Scaled:
            factor = 1
            def __enter__(self):
                Scaled.factor = 2
            def __exit__(self, *error):
                pass
        def make_loader():
            with Scaled() if rate > 0.2 else contextlib.nullcontext():
                size = 3 * Scaled.factor
            return DataLoader(D("/d", size))
    """,
}
