"""What a loader is known by: the same in jobs that load the same, another in those that don't."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from feedline._identity import Identity, differences, identity_of
from support.identity_other import OTHER
from support.identity_same import SAME
from support.identity_scripts import (
    differing,
    identity,
    labels,
    maybe_differing,
    run,
    write_module,
)

OTHERS = ("--lr", "0.5", "--seed", "7", "--out", "runs/b", "--workers", "6")


@pytest.mark.parametrize("how", SAME)
def test_other_learning_rates_seeds_and_folders_are_the_same_loader(how: str) -> None:
    first, second = identity(SAME[how]), identity(SAME[how], *OTHERS)
    assert differing(first, second) == set()
    assert not first.opaque


@pytest.mark.parametrize("how", SAME)
def test_another_size_is_another_loader(how: str) -> None:
    assert differing(identity(SAME[how]), identity(SAME[how], "--size", "200"))


@pytest.mark.parametrize("how", OTHER)
def test_what_changes_what_is_loaded_is_found(how: str) -> None:
    first_line, text = textwrap.dedent(OTHER[how]).strip().split("\n", 1)
    one, other = first_line.removeprefix("#").split("|")
    one, other = one.strip(), other.strip()
    first = identity(text.replace("$", one))
    assert differing(first, identity(text.replace("$", one))) == set()
    assert differing(first, identity(text.replace("$", other)))


PARSES = """
import argparse
from numpy import zeros
def make_loader():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr")
    parser.add_argument("--num-samples", dest="samples", type=int)
    parser.add_argument("-n", type=int)
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("count", type=int, nargs="?", default=5)
    args = parser.parse_args()
    return [zeros((%s))]
"""


@pytest.mark.parametrize(
    ("used", "one", "other", "is_same"),
    [
        ("args.count", "--lr 0.1 5", "--lr 0.1 9", False),
        ("args.count", "--lr 0.1 5", "--lr 0.2 5", True),
        ("args.count", "--lr 0.1 5", "5 --lr=0.2 --fast", True),
        ("args.count", "--lr 0.1", "--lr 0.1 5", True),
        ("args.samples", "--num-samples 3", "--num-samples 4", False),
        ("args.samples", "--num-samples 3 5", "--num-s=3 7", True),
        ("args.n", "-n 3 --num-samples 4", "-n 3 --num-samples 5", True),
        ("args.n", "-n 3 --num-samples 4", "-n4 --num-samples 4", False),
        ("vars(args)['n']", "-n 3 --lr 1", "-n3 --lr 2", True),
        ("list(vars(args).values())", "-n 3 --lr 1", "-n3 --lr 2", False),
    ],
)
def test_what_the_loader_itself_reads_from_the_command_line(
    used: str, one: str, other: str, is_same: bool
) -> None:
    found = [identity(PARSES % used, *argv.split(), begin="") for argv in (one, other)]
    assert (differing(*found) == set()) == is_same
    outside = "import argparse\nfrom numpy import zeros\n" + "\n".join(
        line.removeprefix("    ") for line in PARSES.splitlines() if "parser" in line
    ).replace("args = parser.parse_args()", "")
    inside = f"\ndef make_loader():\n    args = parser.parse_args()\n    return [zeros({used})]"
    found = [identity(outside + inside, *argv.split(), begin="") for argv in (one, other)]
    assert (differing(*found) == set()) == is_same


def test_variables_in_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "make_loader = lambda: DataLoader(D(os.path.expandvars('$FL_ROOT/${FL_PART}'), 3))"
    monkeypatch.setenv("FL_PART", "train")
    found = []
    for root in ("/a", "/a", "/b"):
        monkeypatch.setenv("FL_ROOT", root)
        found.append(identity(text))
    assert differing(found[0], found[1]) == set()
    assert differing(found[0], found[2]) == {"os.environ['FL_ROOT']"}


def test_a_difference_is_named_with_its_path() -> None:
    found = differing(
        identity(SAME["a function of args"]), identity(SAME["a function of args"], "--size", "3")
    )
    assert found == {"args.size"}
    shown = labels(identity(SAME["a function of args"], "--size", "3"))
    assert shown["args.size"] == "3"
    assert "args.lr" not in shown


LIBRARY = """
    from torch.utils.data import DataLoader, TensorDataset
    import torch
    def load(size, lr=None):
        return TensorDataset(torch.arange(size))
    def build(args, split="train"):
        print("loading", args)
        return DataLoader(load(args.size))
    class Data:
        def __init__(self, args):
            self.args = args
"""


def test_args_that_a_library_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function tells by its source what it reads; of other things all counts, and why is said.

    Options of the training that a library gets with all others are told of, and no error.
    """
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    write_module(folder, "library_fl", LIBRARY)
    text = "import library_fl\nmake_loader = lambda: library_fl.%s(args)"
    first = identity(text % "build")
    assert differing(first, identity(text % "build", *OTHERS)) == set()
    assert differing(first, identity(text % "build", "--size", "3")) == {"args.size"}
    of_rates = [identity(text % "Data", "--lr", rate) for rate in ("0.1", "0.5")]
    assert differing(*of_rates) == set()
    assert differences(of_rates[1].entries, of_rates[0].entries, 7) == (
        [],
        [
            "args.lr: 0.1 in the running feed (pid 7), 0.5 here "
            "(all of args goes to library_fl.Data)"
        ],
    )
    of_sizes = [identity(text % "Data", "--size", size) for size in ("1", "2")]
    assert differences(of_sizes[1].entries, of_sizes[0].entries, 7) == (
        ["args.size: 1 in the running feed (pid 7), 2 here (all of args goes to library_fl.Data)"],
        [],
    )


TRACKER = """
    def log(values):
        pass
    class Run:
        def log(self, values):
            pass
    class tqdm:
        def __init__(self, each, desc=None):
            self.each = each
        def __iter__(self):
            return iter(self.each)
"""


def test_what_is_told_to_a_tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What wandb logs, and what tqdm shows, changes nothing that is loaded."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    for name in ("wandb", "tqdm"):
        monkeypatch.setitem(sys.modules, name, sys.modules.get(name))
        write_module(folder, name, TRACKER)
    text = """
        import wandb
        from tqdm import tqdm
        run = wandb.Run()
        def make_loader():
            wandb.log({"lr": args.lr})
            if args.seed:
                run.log({"seed": args.seed})
            parts = [D(root, args.size) for root in tqdm([args.data], desc=args.out)]
            return DataLoader(parts[0])
    """
    first = identity(text)
    assert differing(first, identity(text, *OTHERS)) == set()
    assert differing(first, identity(text, "--size", "3")) == {"args.size"}
    assert differing(first, identity(text, "--data", "/e")) == {"args.data"}


def test_from_deep_inside_of_a_program_it_is_the_same() -> None:
    text = """
        N = 1
        def f0(x):
            return [x, N]
    """ + "".join(
        f"""
        def f{level}(x):
            for one in range(3):
                if one:
                    with torch.no_grad():
                        x = [[[f{level - 1}(one)[-1]]]]
            return x
        """
        for level in range(1, 40)
    )
    text += "\n        make_loader = lambda: f39(args.size)"
    scope = run(text)

    def deep(levels: int) -> Identity:
        return deep(levels - 1) if levels else identity_of(scope["make_loader"])

    assert deep(800) == identity_of(scope["make_loader"])
    assert "N" in labels(deep(0))
    assert not deep(0).opaque


def test_a_relative_path_is_another_one_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "root = 'train_fl'\nmake_loader = lambda: DataLoader(D(root, 3))"
    found = []
    for folder in ("a", "b"):
        (tmp_path / folder / "train_fl").mkdir(parents=True)
        monkeypatch.chdir(tmp_path / folder)
        found.append(identity(text))
    assert differing(*found) == {"root, as a path"}


@pytest.mark.parametrize("how", ["'./data_fl'", "root", "pathlib.Path(root)", "roots"])
def test_a_folder_that_the_first_job_makes(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It downloads into it, perhaps."""
    text = f"root = './data_fl'\nroots = [root]\nmake_loader = lambda: DataLoader(D({how}, 3))"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    first = identity(text)
    (tmp_path / "data_fl").mkdir()
    assert differing(first, identity(text)) == set()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert differing(first, identity(text))


def test_what_cannot_be_compared_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    scope = run(f"file = open({str(tmp_path / 'file')!r})\nmake_loader = lambda: [file]")
    found = identity_of(scope["make_loader"])
    assert found.opaque == {"file": "an open file"}


@pytest.mark.parametrize("made", ["random.Random({})", "np.random.RandomState({})"])
@pytest.mark.parametrize(
    "where", ["rng = {}", "rng = D([{}], 3)", "rng = [types.SimpleNamespace(a={})]"]
)
def test_a_generator_that_may_be_seeded(made: str, where: str) -> None:
    """Two jobs that seed it alike are the same; of all others that can't be seen."""
    text = f"{where}\nmake_loader = lambda: DataLoader(D(rng, 3))"
    first = identity(text.format(made.format(1)))
    again = identity(text.format(made.format(1)))
    other = identity(text.format(made.format("")))
    assert maybe_differing(first, again) == differing(first, again) == set()
    drawn = f"{text.format(made.format(''))}\nrandom.random()"
    assert differing(identity(drawn), other) == set()
    assert maybe_differing(identity(drawn), other)


def test_a_chain_of_loops_takes_no_time_to_speak_of() -> None:
    """Each level doubles what there would be to walk through."""
    text = "N = {}\ndef f0(x):\n    return [x, N]\n"
    for level in range(1, 60):
        text += (
            f"def f{level}(x):\n    for one in f{level - 1}(x):\n"
            f"        x = [one, f{level - 1}(x), x]\n    return [x, x]\n"
        )
    text += "make_loader = lambda: f59(args.size)"
    first = identity(text.format(1))
    assert differing(first, identity(text.format(1))) == set()
    assert "N" in differing(first, identity(text.format(2)))
    assert not first.opaque


def test_functions_that_call_themselves() -> None:
    text = """
        N = {}
        def walk(x, seen, depth):
            if depth > 30:
                return x
            return walk(x + 1, [*seen, x], depth + 1) + other(f"{{x}}.", dict(seen=seen))
        def other(x, kw):
            return walk(x + "a", [kw], N)
        make_loader = lambda: walk(args.size, [], 0)
    """
    first = identity(text.format(1))
    assert differing(first, identity(text.format(2))) == {"N"}
    assert not first.opaque


def test_a_list_of_many_objects_is_few_entries() -> None:
    text = """
        class Sample:
            def __init__(self, path, label):
                self.path, self.label = path, label
        class Item(Sample):
            def __len__(self):
                return self.label
        samples = [{}(f"/d/{{i}}", i * {}) for i in range(5000)]
        make_loader = lambda: DataLoader(D(samples, 3))
    """
    for cls in ("Sample", "Item"):
        first = identity(text.format(cls, 1))
        assert len(first.entries) < 100
        assert differing(first, identity(text.format(cls, 1))) == set()
        assert differing(first, identity(text.format(cls, 2)))


@pytest.mark.parametrize(
    "code",
    ["eval(N + input())", "exec(N)", "getattr(odd, input())", "importlib.import_module(input())"],
)
def test_code_that_is_made_when_it_runs_is_named(code: str) -> None:
    text = "import importlib\nN, odd = 'a', D('/d', 3)\ndef make_loader():\n    return [%s]"
    assert identity(text % code).opaque


def test_odd_objects_do_no_harm() -> None:
    text = """
        class Odd:
            def __repr__(self):
                raise RuntimeError("no")
            def __getstate__(self):
                raise RuntimeError("no")
            @property
            def size(self):
                raise RuntimeError("no")
        odd = Odd()
        odd.me = odd
        def make_loader():
            return DataLoader(D(odd, odd.size), collate_fn=make_loader)
    """
    assert differing(identity(text), identity(text)) == set()


def test_ranks_of_a_job_are_the_same() -> None:
    text = "make_loader = lambda: DataLoader(D('/d', int(os.environ.get('RANK', 0))))"
    found = [identity(f"os.environ['RANK'] = '{rank}'\n{text}") for rank in (0, 1)]
    assert differing(*found) == set()


SEEDED = """
import types
from support.identity_other import OTHER
from support.identity_same import SAME
from support.identity_scripts import identity
found = identity('''
tags = {"a", "b", "c", "long words", "more"}
class Odd:
    pass
odds = [Odd(), Odd(), object()]
table = {tag: len(tag) for tag in tags}
def scaled(k):
    return lambda x: x * k
class Odder:
    def __init__(self, k):
        self.k = k
    def __call__(self, x):
        return x * self.k
functions = {scaled(1), scaled(2), scaled(3)} | {Odder(1), Odder(2), Odder(3)}
pairs = frozenset((tag, 1) for tag in tags)
def make_loader():
    everything = [tags, table, pairs, odds, functions]
    return DataLoader(D(everything, 3), collate_fn=lambda x: x in {"a", "b", "c"})
''')
print([entry.digest for entry in found.entries], found.opaque)
"""


def test_hash_seeds_and_addresses_do_not_count() -> None:
    found = set()
    for seed in ("0", "1", "2", "33"):
        command = [sys.executable, "-c", SEEDED]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
        assert done.returncode == 0, done.stderr
        found.add(done.stdout)
    assert len(found) == 1
    assert "{}" in found.pop()
