"""Checks a wheel: its tag, its size, and the files that users and type checkers count on.

    python tests/wheels/contents.py dist/feedline-*.whl

Whether the tag is true (no symbol of a newer glibc) is checked by maturin, which builds it.
"""

from __future__ import annotations

import argparse
import platform
import struct
import sys
import zipfile
from pathlib import Path

TAG = f"cp311-abi3-manylinux_2_28_{platform.machine()}"
# It has 2.4 MB. Symbols, a second extension or a stray data set would show.
MOST_BYTES = 10_000_000
FILES = {
    "feedline/__init__.py",
    "feedline/_core.abi3.so",
    "feedline/_core.pyi",
    "feedline/py.typed",
}
METADATA = {
    "METADATA",
    "entry_points.txt",
    "licenses/LICENSE-APACHE",
    "licenses/LICENSE-MIT",
}
SYMBOL_TABLE = 2


def faults(wheel: Path) -> list[str]:
    """What is wrong with a wheel, a line for each fault."""
    found = []
    name, version, tag = wheel.stem.split("-", 2)
    if tag != TAG:
        found.append(f"its tag is {tag}, not {TAG}")
    if wheel.stat().st_size > MOST_BYTES:
        found.append(f"it has {wheel.stat().st_size:,} bytes, more than {MOST_BYTES:,}")
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(wheel) as files:
        names = set(files.namelist())
        wanted = FILES | {f"{info}/{file}" for file in METADATA}
        found += [f"{file} is missing" for file in sorted(wanted - names)]
        found += [
            f"{file} does not belong into it"
            for file in sorted(names)
            if not file.startswith(("feedline/", f"{info}/")) or "__pycache__" in file
        ]
        found += [
            f"{file} is not stripped"
            for file in sorted(names)
            if file.endswith(".so") and SYMBOL_TABLE in section_types(files.read(file))
        ]
        if f"{info}/WHEEL" in names and f"Tag: {tag}\n" not in files.read(f"{info}/WHEEL").decode():
            found.append(f"{info}/WHEEL has another tag than the file's name")
    return found


def section_types(elf: bytes) -> set[int]:
    """The types of the sections of a 64-bit little-endian ELF file."""
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count = struct.unpack_from("<HH", elf, 0x3A)
    return {struct.unpack_from("<I", elf, table + i * size + 4)[0] for i in range(count)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    wheel: Path = parser.parse_args().wheel
    found = faults(wheel)
    if found:
        sys.exit("\n  ".join([f"{wheel} can't be released:", *found]))
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, complete")


if __name__ == "__main__":
    main()
