"""A feed's numbers for others: as Prometheus text on a port, as lines of JSON in a file."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import feedline
from conftest import Start
from support.child import hear, say
from support.loaders import Broken, Endless, Numbered
from support.prometheus import ask, numbers, scrape
from support.reading import expected, read
from support.share_scripts import ids
from support.share_scripts import numbers as loader
from support.waiting import eventually

# What stats() tells in words, in lists, or under a name that Prometheus spells otherwise.
NAMED_OTHERWISE = {
    "pid": "feedline_info",
    "replay": "feedline_info",
    "history_in_file": "feedline_info",
    "whole_batches": "feedline_info",
    "loading_secs": "feedline_source_seconds_total",
    "copying_secs": "feedline_source_seconds_total",
    "wait_secs": "feedline_source_seconds_total",
    "ring_fill": "feedline_ring_fill_ratio",
    "oldest": "feedline_oldest_sample",
    "generation": "feedline_ring_generation",
    "wait_for": "feedline_wait_for_consumers",
    "consumer_id": "feedline_consumer_info",
    "consumer_job": "feedline_consumer_info",
    "consumer_pid": "feedline_consumer_info",
    "consumer_uid": "feedline_consumer_info",
    "consumer_skipped": "feedline_consumer_skipped_samples_total",
    "consumer_waited_secs": "feedline_consumer_waited_seconds_total",
    "consumer_batch_size": "feedline_consumer_batch_size_samples",
}


@pytest.fixture
def fed() -> Iterator[feedline.Server]:
    """A feed with a port and a consumer that stands in the middle of it."""
    with feedline.Server(Endless(10), "train", ring=40, metrics_port=0) as server:
        feed = feedline.attach("train", batch_size=7)
        batches = iter(feed)
        kept = [next(batches) for _ in range(3)]
        yield server
        del kept
        feed.close()


def lines(path: Path) -> list[dict[str, Any]]:
    """Read a metrics file as the documentation says: what isn't JSON is skipped."""
    found = []
    for line in path.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def both(server: feedline.Server) -> tuple[dict[str, Any], str]:
    """What the server says of one moment, itself and to Prometheus."""
    while True:
        stats = server.stats()
        text = scrape(stats["metrics_port"])
        if server.stats()["samples"] == stats["samples"]:
            return stats, text


def test_prometheus_reads_what_stats_tells(fed: feedline.Server) -> None:
    stats, text = both(fed)
    families = {family.name: family for family in text_string_to_metric_families(text)}
    told = numbers(text)
    for family in families.values():
        assert family.documentation.endswith("."), family.name
        for sample in family.samples:
            # A counter's family loses its suffix in the parser, and nothing else may have it.
            assert sample.name == family.name + "_total" * (family.type == "counter")
            assert not re.search(r"_(secs|ms|mb|percent)(_|$)", sample.name)
            assert sample.labels["feed"] == "train"
    (consumer,) = stats["consumers"]
    who = {"feed": "train", "pid": str(os.getpid()), "consumer": str(consumer["id"])}
    key = tuple(sorted(who.items()))
    assert told["feedline_up"] == {(("feed", "train"),): 1}
    for name in ("samples", "batches", "bytes"):
        assert told[f"feedline_{name}_total"][(("feed", "train"),)] == stats[name]
    assert told["feedline_consumer_batches_total"][key] == consumer["batches"] == 3
    assert told["feedline_consumer_lag_samples"][key] == consumer["lag_samples"] > 0
    assert {dict(labels)["phase"] for labels in told["feedline_source_seconds_total"]} == {
        "loading",
        "copying",
        "waiting",
    }
    joined = (("feed", "train"), ("kind", "joined"))
    died = (("feed", "train"), ("kind", "died"))
    assert (told["feedline_events_total"][joined], told["feedline_events_total"][died]) == (1, 0)
    of_consumer = {f"consumer_{name}": value for name, value in consumer.items()}
    for name, value in {**stats, **of_consumer}.items():
        if isinstance(value, int | float) and name != "metrics_port":
            name = NAMED_OTHERWISE.get(name, f"feedline_{name}".replace("_secs", "_seconds"))
            assert name in told or f"{name}_total" in told, name


def test_bad_clients_hurt_nobody(start: Start) -> None:
    server = start(serve_forever, metrics_port=0)
    port = server.expect("ready")["stats"]["metrics_port"]
    feed = feedline.attach("train", batch_size=16)
    batches = iter(feed)
    next(batches)
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
    half = socket.create_connection(("127.0.0.1", port))
    half.sendall(b"GET /metrics HTTP/1.1\r\nHost: ")
    assert b"400 Bad Request" in ask(port, os.urandom(64).replace(b"\n", b" ") + b"\n\n")
    assert b"400 Bad Request" in ask(port, b"\x00\r\n\r\n")
    assert b"405 Method Not Allowed" in ask(port, b"POST /metrics HTTP/1.1\r\n\r\n")
    assert b"404 Not Found" in ask(port, b"GET /../../etc/passwd HTTP/1.1\r\n\r\n")
    # It may be cut off before all of it is sent, or after the answer.
    endless = ask(port, b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 1_000_000)
    assert endless == b"" or b"431 " in endless
    told = numbers(scrape(port))
    assert told["feedline_consumers_joined"] == {(("feed", "train"),): 1}
    next(batches)
    for stranger in (*silent, half):
        stranger.close()
    feed.close()


def serve_forever(**options: Any) -> None:
    with feedline.Server(Endless(10), "train", **options) as server:
        say("ready", stats=server.stats())
        hear()


def test_the_port_is_on_this_machine_alone(fed: feedline.Server) -> None:
    port = f":{fed.stats()['metrics_port']:04X}"
    rows = [row.split() for file in ("tcp", "tcp6") for row in _sockets(file)]
    listening = [row[1] for row in rows if row[1].endswith(port) and row[3] == "0A"]
    assert listening == [f"0100007F{port}"]


def _sockets(file: str) -> list[str]:
    path = Path("/proc/net", file)
    return path.read_text().splitlines()[1:] if path.exists() else []


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(feedline.FeedlineError) as raised:
            feedline.Server(Numbered(60, 10), "train", metrics_port=port).start()
        assert str(raised.value) == (
            f"cannot answer Prometheus on 127.0.0.1:{port}: another process has that port\n"
            "  choose another port, or 0 for any that is free"
        )
        assert feedline.feeds() == []
    with feedline.Server(Numbered(60, 10), "train", metrics_port=port):
        assert numbers(scrape(port))["feedline_up"]


@pytest.mark.parametrize("port", [-1, 65536, True, "http", 1.5])
def test_what_is_no_port(port: Any) -> None:
    with pytest.raises(feedline.FeedlineError, match="is not a port\n  give a number"):
        feedline.Server(Numbered(60, 10), "train", metrics_port=port)


def serve_with_a_worker(port: int) -> None:
    """Serve, beside a forked child that will outlive this process."""
    with feedline.Server(Endless(10), "train", metrics_port=port) as server:
        worker = os.fork()
        if worker == 0:
            hear()
            os._exit(0)
        say("ready", port=server.stats()["metrics_port"])
        hear()


def test_workers_of_a_killed_server_free_its_port(start: Start, reap: Callable[[], None]) -> None:
    first = start(serve_with_a_worker, port=0)
    port = first.expect("ready")["port"]
    first.kill()
    with feedline.Server(Numbered(60, 10), "train", metrics_port=port):
        assert numbers(scrape(port))["feedline_up"]
    first.finish()
    reap()


def test_the_file_tells_the_whole_story(tmp_path: Path) -> None:
    path = tmp_path / "feed.jsonl"
    server = feedline.Server(Numbered(60, 10), "train", epochs=1, metrics_file=path)
    with server:
        assert read(feedline.attach("train", batch_size=7)) == expected(0, 60, 7)
        server.wait()
    first, *_, last = told = lines(path)
    assert path.read_text().count("\n") == len(told)
    assert (last["state"], last["why"], last["samples"], last["pid"]) == (
        "ended",
        None,
        60,
        os.getpid(),
    )
    assert last["time"] >= first["time"] > 1.7e9
    assert set(server.stats()) | {"time"} == set(last)
    seen = [event["number"] for line in told for event in line["events"]]
    assert seen == list(range(len(seen))), "each event once"


@pytest.mark.parametrize(
    ("how", "state", "why"),
    [("raise", "failed", "the loader raised"), ("stop", "stopped", "was told to stop")],
)
def test_the_last_line_says_why(tmp_path: Path, how: str, state: str, why: str) -> None:
    path = tmp_path / "feed.jsonl"
    source = Broken(60, 10, at=30) if how == "raise" else Endless(10)
    server = feedline.Server(source, "train", metrics_file=path, ring=20).start()
    feed = feedline.attach("train")
    if how == "raise":
        with pytest.raises(feedline.LoaderError):
            list(feed)
        with pytest.raises(feedline.LoaderError):
            server.wait()
    server.stop()
    last = lines(path)[-1]
    assert last["state"] == state
    assert why in last["why"]
    assert last["events"][-1]["kind"] == state
    feed.close()


def write_quickly(path: str) -> None:
    server = feedline.Server(Endless(10), "train", metrics_file=path)
    server._launch["metrics_interval_secs"] = 0.005
    with server:
        say("ready")
        hear()


def test_killed_writers_leave_whole_lines(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "feed.jsonl"
    pids = []
    for turn in range(3):
        writer = start(write_quickly, path=str(path))
        writer.expect("ready")
        pids.append(writer.pid)
        eventually(lambda: sum(line["pid"] == pids[-1] for line in lines(path)) > 20)
        if turn < 2:
            writer.kill()
        if turn == 1:
            # What no write of ours does, but a disk that fills up might.
            path.write_bytes(path.read_bytes()[:-20])
    writer.finish()
    told = lines(path)
    assert list(dict.fromkeys(line["pid"] for line in told)) == pids
    text = path.read_text()
    assert len(text.splitlines()) - len(told) == 1
    assert text.count('{"time":') - len(told) == 1, "the torn line took another with it"
    assert text.endswith("\n")


@pytest.mark.parametrize("where", ["missing/feed.jsonl", "."])
def test_a_file_that_cannot_be(tmp_path: Path, where: str) -> None:
    path = tmp_path / where
    with pytest.raises(feedline.FeedlineError, match=re.escape(f"metrics to {path}: ")) as raised:
        feedline.Server(Numbered(60, 10), "train", metrics_file=path).start()
    assert str(raised.value).endswith(
        "\n  name a file in a folder that exists, and that you may write to"
    )
    assert feedline.feeds() == []


def test_a_full_disk_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    server = feedline.Server(Numbered(60, 10), "train", epochs=1, metrics_file="/dev/full")
    server._launch["metrics_interval_secs"] = 0.001
    with caplog.at_level(logging.WARNING, "feedline"), server:
        eventually(lambda: bool(caplog.records))
        assert read(feedline.attach("train", batch_size=7)) == expected(0, 60, 7)
        server.wait()
    (message,) = caplog.messages
    assert message.startswith('feed "train": cannot write metrics to /dev/full: No space left')


def test_a_pipe_that_nobody_reads_keeps_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(feedline.FeedlineError, match="cannot write metrics to"):
        feedline.Server(Numbered(60, 10), "train", metrics_file=tmp_path / "pipe").start()


def test_a_forked_child_leaves_its_parents_exporters_alone(tmp_path: Path) -> None:
    path = tmp_path / "feed.jsonl"
    with feedline.Server(Endless(10), "train", metrics_port=0, metrics_file=path) as server:
        pid = os.fork()
        if pid == 0:
            server.stop()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert numbers(scrape(server.stats()["metrics_port"]))["feedline_up"]
        eventually(lambda: bool(lines(path)))
        assert lines(path)[-1]["state"] != "stopped"


@pytest.mark.usefixtures("servers_leave")
def test_share_takes_both(tmp_path: Path) -> None:
    path = tmp_path / "feed.jsonl"
    with feedline.share(
        loader, "train", linger_secs=0.0, metrics_port=0, metrics_file=path
    ) as feed:
        ids(feed)
        pid = feed.stats()["server_pid"]
    eventually(lambda: path.exists() and lines(path)[-1]["state"] == "stopped")
    last = lines(path)[-1]
    assert (last["pid"], last["why"]) == (pid, "nobody was attached for 0 s")
    assert last["metrics_port"] > 0


def test_serve_writes_when_it_is_interrupted(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "feed.jsonl"
    child = start(serve_in_the_foreground, path=str(path))
    eventually(lambda: path.exists() and bool(lines(path)))
    child.signal(signal.SIGINT)
    child.exit_code()
    assert lines(path)[-1]["state"] == "stopped"


def serve_in_the_foreground(path: str) -> None:
    try:
        feedline.serve(Endless(10), "train", metrics_file=path)
    except KeyboardInterrupt:
        sys.exit(0)
