"""`feedline ls` and `feedline stop`: what runs is listed, and ends once."""

from __future__ import annotations

import json

from conftest import Start
from support import roles
from support.commands import WHEEL, binary, run


def test_what_runs_is_listed(start: Start) -> None:
    nobody = run("ls", program=binary())
    assert (nobody.returncode, nobody.stdout) == (0, "")
    assert "no feeds run for this user" in nobody.stderr
    assert json.loads(run("ls", "--json", program=binary()).stdout) == []

    server = start(roles.serve, loader="support.served:numbered")
    server.expect("ready")
    for program in (binary(), WHEEL):
        header, row = run("ls", program=program).stdout.splitlines()
        assert header.split()[:2] == ["NAME", "PID"]
        assert row.split()[:2] == ["train", str(server.pid)]
        assert header.split()[-3:] == ["RING", "SERVER", "UP"]
    [listed] = json.loads(run("ls", "--json", program=binary()).stdout)
    assert (listed["name"], listed["pid"]) == ("train", server.pid)
    assert listed["stats"]["name"] == "train"
    assert listed["server_bytes"] > 0

    assert run("stop", "--all", program=binary()).stderr == f"stopped train (pid {server.pid})\n"
    assert run("ls", program=binary()).stdout == ""


def test_one_that_cannot_be_stopped_does_not_save_the_others(start: Start) -> None:
    start(roles.serve, loader="support.served:numbered").expect("ready")
    result = run("stop", "nobody", "train", program=binary())
    assert result.returncode == 1
    assert "stopped train" in result.stderr
    assert 'no feed is named "nobody"' in result.stderr


def test_each_feed_is_stopped_once(start: Start) -> None:
    pids = {}
    for name in ("train", "val"):
        server = start(roles.serve, name=name, loader="support.served:numbered")
        server.expect("ready")
        pids[name] = server.pid
    result = run("stop", "val", "train", "val", program=binary())
    assert result.returncode == 0
    assert result.stderr.splitlines() == [
        f"stopped {name} (pid {pids[name]})" for name in ("val", "train")
    ]
