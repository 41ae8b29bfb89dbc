"""Folders that a loader's code lists: what was added to them meanwhile is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.identity_scripts import differing, identity, maybe_differing

# By what lists them: code, and whether folders inside count by what they hold.
WAYS = {
    "os.listdir": ("os.listdir('data')", False),
    "os.walk": ("[f for _, _, files in os.walk('data') for f in files]", True),
    "glob": ("__import__('glob').glob('data/*.npy')", False),
    "a path's glob": ("sorted(pathlib.Path('data').glob('*.npy'))", False),
    "a path's iterdir": ("[one.name for one in pathlib.Path('data').iterdir()]", False),
    "folders of classes": (
        "[f for c in os.listdir('data') for f in os.listdir(os.path.join('data', c))]",
        True,
    ),
}


@pytest.mark.parametrize("how", WAYS)
def test_names_that_were_added(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, is_deep = WAYS[how]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "cats").mkdir(parents=True)
    (tmp_path / "data" / "one.npy").touch()
    text = f"def make_loader():\n    return DataLoader({code})"
    first, again = identity(text), identity(text)
    assert maybe_differing(first, again) == set()
    added = "data/cats/two.npy" if is_deep else "data/two.npy"
    (tmp_path / added).touch()
    second = identity(text)
    assert differing(first, second) == set()
    label = "names in data/*.npy" if "*" in code else "names in data"
    assert maybe_differing(first, second) == {label}
