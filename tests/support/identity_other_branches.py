"""Scripts that share a loader: statements of which only one branch runs."""

from __future__ import annotations

# Each has two versions, told apart by what stands for $: the two values of its first line.
OTHER_BRANCHES = {
    "a variable that is set in a branch": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            size = 3
            if rate > 0.2:
                size = 4
            return DataLoader(D("/d", size))
    """,
    "a variable that is set in a branch of a branch": """
        # 1 | 2
        kind = $
        def make_loader():
            if kind > 0:
                print("positive")
                if kind == 1:
                    a, b = 1, 2
                else:
                    a, b = 2, 1
            return DataLoader(D(a, b))
    """,
    "a variable that is added to in a branch": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            size, parts = 3, ["/a"]
            if rate > 0.2:
                size += 1
            if rate > 0.3:
                parts += ["/b"]
            return DataLoader(D(parts, size))
    """,
    "a list that is added to in a branch": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            parts = ["/a"]
            same = parts
            if rate > 0.2:
                same.append("/b")
            return DataLoader(D(parts, 3))
    """,
    "a helper that returns early": """
        # 0.1 | 0.5
        rate = $
        def size():
            if rate > 0.2:
                return 3
            return 4
        make_loader = lambda: DataLoader(D("/d", size()))
    """,
    "a helper whose branches set its result": """
        # 0.1 | 0.5
        rate = $
        def size():
            if rate > 0.2:
                found = 3
            else:
                found = 4
            print(found)
            return found
        make_loader = lambda: DataLoader(D("/d", size()))
    """,
    "a check that is caught": """
        # 0.1 | 0.5
        rate = $
        def check():
            assert rate > 0.2
        def make_loader():
            size = 3
            try:
                check()
            except AssertionError:
                size = 4
            return DataLoader(D("/d", size))
    """,
    "an error that is caught": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            try:
                if rate > 0.2:
                    raise ValueError("too fast")
                root = "/a"
            except ValueError:
                root = "/b"
            return DataLoader(D(root, 3))
    """,
    "a loop that stops": """
        # 1 | 2
        most = $
        def make_loader():
            parts = []
            for number in range(10):
                if number > most:
                    break
                parts.append(number)
            return DataLoader(D(parts, 3))
    """,
    "a loop that leaves some out": """
        # 1 | 2
        odd = $
        def make_loader():
            parts = []
            for number in range(10):
                if number == odd:
                    continue
                parts.append(number)
            return DataLoader(D(parts, 3))
    """,
    "a global that a branch sets": """
        # 0.1 | 0.5
        rate = $
        SIZE = 3
        def setup():
            global SIZE
            if rate > 0.2:
                SIZE = 4
        def make_loader():
            setup()
            return DataLoader(D("/d", SIZE))
    """,
    "a branch that seeds": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            if rate > 0.2:
                torch.manual_seed(3)
            return DataLoader(D("/d", 3), shuffle=True)
    """,
    "a variable of an outer function that a branch sets": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            size = 3
            def enlarge():
                nonlocal size
                if rate > 0.2:
                    size = 4
            enlarge()
            return DataLoader(D("/d", size))
    """,
    "a match": """
        # 1 | 2
        kind = $
        def make_loader():
            match kind:
                case 1:
                    size = 3
                case _:
                    size = 4
            return DataLoader(D("/d", size))
    """,
    "a variable that a loop's branch sets": """
        # 1 | 2
        kind = $
        def make_loader():
            size = 3
            for number in range(5):
                if number == kind:
                    size = number
            return DataLoader(D("/d", size))
    """,
    "a list that a helper adds to in a branch": """
        # 0.1 | 0.5
        rate = $
        def add(parts):
            parts.append("/b")
        def make_loader():
            parts = ["/a"]
            if rate > 0.2:
                add(parts)
            return DataLoader(D(parts, 3))
    """,
    "a helper that adds to a list or not": """
        # 0.1 | 0.5
        rate = $
        def add(parts):
            if rate > 0.2:
                parts.append("/b")
        def make_loader():
            parts = ["/a"]
            add(parts)
            return DataLoader(D(parts, 3))
    """,
    "a field that a statement sets": """
        # 0.1 | 0.5
        rate = $
        class E(D):
            def __init__(self):
                super().__init__("/d", 3)
                self.scale = 1
                if rate > 0.2:
                    self.scale = 2
            def __getitem__(self, index):
                return index * self.scale
        make_loader = lambda: DataLoader(E())
    """,
    "a field that a method sets": """
        # 0.1 | 0.5
        rate = $
        class E(D):
            scale = 1
            def tune(self):
                if rate > 0.2:
                    self.scale = 2
            def __getitem__(self, index):
                return index * self.scale
        def make_loader():
            ds = E("/d", 3)
            ds.tune()
            return DataLoader(ds)
    """,
    "an entry that a branch sets": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            kw = {"data": "/d"}
            if rate > 0.2:
                kw["size"] = 4
            return DataLoader(D(kw["data"], kw.get("size", 3)))
    """,
    "whether an entry is there that a branch sets": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            kw = {}
            if rate > 0.2:
                kw["size"] = 4
            return DataLoader(D("/d", 3 if "size" in kw else 4))
    """,
    "how many entries a branch sets": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            kw = {"a": 1}
            if rate > 0.2:
                kw["b"] = 1
            return DataLoader(D("/d", len(kw)))
    """,
    "which entries a branch sets": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            kw = {"a": 1}
            if rate > 0.2:
                kw["b"] = 1
            return [np.zeros(3) for name in kw]
    """,
    "keyword arguments that a branch sets": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            kw = {}
            if rate > 0.2:
                kw.update(batch_size=2)
            return DataLoader(D("/d", 4), **kw)
    """,
    "an attribute of a namespace that a branch sets": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            cfg = types.SimpleNamespace(size=3)
            if rate > 0.2:
                cfg.size = 4
            return DataLoader(D("/d", cfg.size))
    """,
    "an attribute of an object that exists": """
        # 0.1 | 0.5
        rate = $
        ds = D("/d", 3)
        def make_loader():
            if rate > 0.2:
                ds.size = 4
            return DataLoader(ds)
    """,
    "what a generator leaves out": """
        # 1 | 2
        step = $
        def numbers():
            for number in range(9):
                if number % step == 0:
                    yield number
        make_loader = lambda: [np.zeros(n) for n in numbers()]
    """,
    "which of two functions a branch defines": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            if rate > 0.2:
                def collate(batch):
                    return batch
            else:
                def collate(batch):
                    return batch[::-1]
            return DataLoader(D("/d", 3), collate_fn=collate)
    """,
    "where an iterator ends": """
        # 3 | 4
        most = $
        class Numbers:
            def __init__(self):
                self.at = 0
            def __iter__(self):
                return self
            def __next__(self):
                self.at += 1
                if self.at > most:
                    raise StopIteration
                return self.at
        make_loader = lambda: [np.zeros(n) for n in Numbers()]
    """,
    "where a sequence ends": """
        # 3 | 4
        most = $
        class E(D):
            def __getitem__(self, index):
                if index >= most:
                    raise IndexError(index)
                return index
        make_loader = lambda: list(E("/d", 9))
    """,
    "an error that is suppressed": """
        # 0.1 | 0.5
        rate = $
        import contextlib
        def make_loader():
            root = "/a"
            with contextlib.suppress(ValueError):
                if rate > 0.2:
                    raise ValueError("too fast")
                root = "/b"
            return DataLoader(D(root, 3))
    """,
    "an error that is printed": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            root = "/a"
            try:
                if rate > 0.2:
                    raise ValueError("too fast")
                root = "/b"
            except ValueError as error:
                print(error)
            return DataLoader(D(root, 3))
    """,
    "an error that a sample is left out for": """
        # 3 | 4
        most = $
        def check(index):
            if index > most:
                raise ValueError("too large")
            return index
        class E(D):
            def __getitem__(self, index):
                try:
                    return check(index)
                except ValueError:
                    return 0
        make_loader = lambda: DataLoader(E("/d", 9))
    """,
    "what a pattern captures": """
        # 3 | 4
        cfg = {"size": $}
        def make_loader():
            match cfg:
                case {"size": size}:
                    return DataLoader(D("/d", size))
    """,
    "a guard of a pattern": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            match 3:
                case 3 if rate > 0.2:
                    size = 3
                case _:
                    size = 4
            return DataLoader(D("/d", size))
    """,
    "a name that ends a loop": """
        # a | b
        kind = "$"
        def make_loader():
            for name in ("a", "b", "c"):
                if name == kind:
                    break
            return DataLoader(D(name, 3))
    """,
    "a value that is looked for": """
        # a | b
        kind = "$"
        sizes = {"a": 3, "b": 4}
        def make_loader():
            size = 0
            for name, one in sizes.items():
                if name == kind:
                    size = one
            return DataLoader(D("/d", size))
    """,
    "a closure over what a branch sets": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            scale = 1
            def collate(batch):
                return [one * scale for one in batch]
            if rate > 0.2:
                scale = 2
            return DataLoader(D("/d", 3), collate_fn=collate)
    """,
    "what is deleted in a branch": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            parts = {"a": 1, "b": 2}
            if rate > 0.2:
                del parts["b"]
            return DataLoader(D(list(parts), 3))
    """,
    "what is removed in a branch": """
        # 0.1 | 0.5
        rate = $
        def make_loader():
            parts = {"a": 1, "b": 2}
            if rate > 0.2:
                parts.pop("b")
            return DataLoader(D(list(parts), 3))
    """,
    "a helper that is called in two branches": """
        # 0.1 | 0.5
        rate = $
        def add(kw, size):
            kw["size"] = size
        def make_loader():
            kw = {}
            if rate > 0.2:
                add(kw, 3)
            else:
                add(kw, 4)
            return DataLoader(D("/d", kw["size"]))
    """,
}
