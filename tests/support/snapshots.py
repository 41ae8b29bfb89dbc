"""Text that is compared with a file. FEEDLINE_SNAPSHOTS=write writes the files anew."""

from __future__ import annotations

import os
import re
from pathlib import Path

from support.processes import TESTS

FOLDER = TESTS / "cli" / "snapshots" / "errors"


def settled(text: str, paths: dict[str, str]) -> str:
    """Replace what differs from run to run: folders, processes, times."""
    for path, word in sorted(paths.items(), key=lambda item: -len(item[0])):
        text = text.replace(path, word)
    text = re.sub(r"\bpid \d+", "pid PID", text)
    text = re.sub(r"\bbatch for [\d.]+ s\b", "batch for SECS s", text)
    text = re.sub(r"\bits thread \d+: .*", "its thread TID: STATE", text)
    text = re.sub(r"(127\.0\.0\.1:|-port )(?!0\b|80800|99999)\d+", r"\1PORT", text)
    text = re.sub(r"\bkill -9 \d+", "kill -9 PID", text)
    text = re.sub(r"(?:/\S+/)?\bpython3?(\.\d+)?(?= -)", "python", text)
    text = re.sub(r"\bthe last [\d.]+ s\b", "the last SECS s", text)
    # Where in a line of code something was raised, which newer Pythons tell better.
    text = re.sub(r"\n +[~^]+(?=\n)", "", text)
    return text.rstrip() + "\n"


def check_snapshot(name: str, text: str, folder: Path = FOLDER) -> None:
    path = folder / f"{name}.txt"
    if os.environ.get("FEEDLINE_SNAPSHOTS") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"{path} is missing: FEEDLINE_SNAPSHOTS=write writes it"
    assert text == path.read_text(), f"{path} differs; FEEDLINE_SNAPSHOTS=write writes it anew"
