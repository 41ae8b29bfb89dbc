"""Which requests the dashboard answers, where it listens, and how it ends."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from support.dashboards import Dashboard

Open = Callable[..., Dashboard]


@pytest.fixture
def dashboard() -> Iterator[Open]:
    opened: list[Dashboard] = []

    def open_one(*args: str) -> Dashboard:
        opened.append(Dashboard(*args))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def refused(*args: str) -> str:
    """Run a dashboard that must fail: what it says."""
    command = [sys.executable, "-m", "feedline", "dashboard", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


def test_loopback_answers_to_its_own_names_and_to_get_only(dashboard: Open) -> None:
    one = dashboard()
    assert one.url == f"http://127.0.0.1:{one.port}/"
    for host in ["localhost", f"127.0.0.1:{one.port}", "[::1]:9999"]:
        assert one.ask(Host=host)[0] == 200
    for host in ["evil.example", f"evil.example:{one.port}", "127.0.0.1.evil.example"]:
        for path in ["/", "/api/feeds", "/app.js"]:
            status, _, body = one.ask(path, Host=host)
            assert status == 403
            assert "feedline dashboard" in body
    for method in ["POST", "PUT", "DELETE", "OPTIONS"]:
        assert one.ask("/api/feeds", method=method)[0] == 405
    assert one.ask("/nothing")[0] == 404
    assert json.loads(one.ask("/api/feeds")[2])["feeds"] == []


def test_every_answer_forbids_what_comes_from_elsewhere(dashboard: Open) -> None:
    one = dashboard()
    for path in ["/", "/app.js", "/api/feeds", "/nothing"]:
        _, headers, body = one.ask(path)
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'self';"), path
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        elsewhere = re.sub(r"http://www\.w3\.org/2000/svg", "", body)
        assert not re.search(r"https?://", elsewhere), path


def test_beyond_loopback_a_token_is_needed(dashboard: Open) -> None:
    one = dashboard("--host", "0.0.0.0")
    found = re.fullmatch(rf"http://127\.0\.0\.1:{one.port}/\?token=([0-9a-f]{{32}})", one.url)
    assert found, one.url
    token = found[1]
    for path in ["/", "/api/feeds", "/api/live", "/style.css", "/?token=", f"/?token={token[:-1]}"]:
        status, headers, body = one.ask(path)
        assert status == 401
        assert "Set-Cookie" not in headers
        assert "feedline dashboard" in body
    status, headers, _ = one.ask(f"/?token={token}")
    assert status == 200
    cookie = headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict"} <= set(cookie.split("; "))
    assert one.ask("/api/feeds", Cookie=cookie.split(";")[0])[0] == 200
    assert one.ask("/api/feeds", Cookie=f"feedline_{one.port}={token[::-1]}")[0] == 401
    assert one.ask("/api/feeds", Authorization=f"Bearer {token}")[0] == 200
    assert token in one.stderr, "the URL from another machine"


def test_a_token_of_ones_own(dashboard: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEEDLINE_TOKEN", "from-the-environment")
    one = dashboard()
    assert one.url.endswith("/?token=from-the-environment")
    assert one.ask()[0] == 401
    assert one.ask("/?token=from-the-environment")[0] == 200


def test_a_port_that_is_taken(dashboard: Open) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        one = dashboard("--port", str(port))
        assert port < one.port < port + 100
        assert f"port {port} is taken: listening on {one.port}" in one.stderr


def test_signals_end_it(dashboard: Open) -> None:
    code, rest = dashboard().end(signal.SIGTERM)
    assert (code, rest) == (0, "")
    one = dashboard()
    code, rest = one.end(signal.SIGINT)
    assert (code, rest) == (130, "")
    assert "the dashboard has ended; the feeds go on" in one.stderr


@pytest.mark.parametrize(
    ("args", "what", "what_next"),
    [
        (["--host", "192.0.2.7"], "this machine does not have that address", "give --host one of"),
        (["--host", "no such host"], 'cannot find the host "no such host"', "give --host an"),
        (["--token", "a b"], "this token cannot be used", "make one with"),
    ],
)
def test_what_cannot_be_is_told(args: list[str], what: str, what_next: str) -> None:
    first, *rest = refused(*args).splitlines()
    assert first.startswith("error: ")
    assert what in first
    assert rest
    assert all(line.startswith("  ") for line in rest)
    assert what_next in rest[0]
