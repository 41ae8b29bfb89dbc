"""The checker of the documentation's links finds what leads nowhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHECKER = Path(__file__).resolve().parents[2] / "docs/_ext/check_links.py"


def check(site: Path, link: str) -> tuple[int, str]:
    (site / "rust").mkdir()
    (site / "rust/index.html").write_text('<a href="gone.html">rustdoc sees to that</a>')
    (site / "other page.html").write_text('<h2 id="there">There</h2>')
    (site / "index.html").write_text(f'<p id="here"><a href="{link}">a link</a></p>')
    checker = [sys.executable, str(CHECKER), str(site)]
    done = subprocess.run(checker, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "link",
    [
        "#here",
        "other%20page.html#there",
        "rust/",
        "rust/index.html",
        "https://example.org/x#y",
        "mailto:somebody@example.org",
    ],
)
def test_links_that_lead_somewhere(tmp_path: Path, link: str) -> None:
    assert check(tmp_path, link) == (0, "")


@pytest.mark.parametrize(
    ("link", "why"),
    [
        ("#nowhere", "no such anchor"),
        ("other%20page.html#nowhere", "no such anchor"),
        ("gone.html", "no such file"),
        ("rust/gone.html", "no such file"),
        ("https:///path", "no host"),
        ("htps://example.org", "neither a path nor an address"),
        ("http://[broken", "Invalid IPv6 URL"),
    ],
)
def test_links_that_lead_nowhere(tmp_path: Path, link: str, why: str) -> None:
    code, complaint = check(tmp_path, link)
    assert code == 1
    assert f"index.html: {link}: " in complaint
    assert why in complaint


def test_a_site_without_pages_is_no_site(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(CHECKER), str(tmp_path)], capture_output=True)
    assert done.returncode == 1
