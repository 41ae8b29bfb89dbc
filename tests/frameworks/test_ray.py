"""Ray Tune: trials attach by name, and some are stopped in mid-epoch; feeds travel pickled."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest

import feedline
from conftest import Start
from frameworks.conftest import TIMEOUT_SECS
from support import roles
from support.child import say
from support.example_runs import Run, output_of
from support.loaders import EPOCH
from support.reading import is_exact, keys_of

SAMPLES = 600
EPOCHS = 2
SIZES = [20, 30, 40]
GOOD = 2  # so many trials run to the end; the last one finds their scores and is stopped
GRACE = 3  # batches


@pytest.fixture(autouse=True)
def quiet_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """No reports to its makers, and nothing written to the home folder."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")


def train(config: dict[str, Any]) -> None:
    """Write down every batch before it is reported: a trial that is stopped says nothing more."""
    from ray import tune

    number = config["number"]
    feed = feedline.attach("train", batch_size=SIZES[number])
    batches = 0
    with Path(config["notes"], str(number)).open("w") as notes:
        for _ in range(EPOCHS):
            for batch in feed:
                assert is_exact(batch)
                notes.write(json.dumps(keys_of(batch)) + "\n")
                notes.flush()
                batches += 1
                tune.report({"score": float(number < GOOD), "batches": batches})


def tune_on_a_feed(folder: str) -> None:
    import ray
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler

    # Not in the test's own folder: a socket's path has 107 bytes, and Ray's are long.
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=80 * 2**20,
        configure_logging=False,
        log_to_driver=False,
    )
    scheduler = ASHAScheduler(
        time_attr="batches", max_t=1000, grace_period=GRACE, reduction_factor=2
    )
    tuner = tune.Tuner(
        train,
        param_space={"number": tune.grid_search(list(range(len(SIZES)))), "notes": folder},
        tune_config=tune.TuneConfig(
            metric="score", mode="max", max_concurrent_trials=2, scheduler=scheduler
        ),
        run_config=tune.RunConfig(storage_path=f"{folder}/results", verbose=0),
    )
    results = tuner.fit()
    errors = [str(result.error) for result in results if result.error]
    say("tuned", errors=errors)

    feed = feedline.attach("train", batch_size=50)
    reader: Any = ray.remote(Reader).remote(feed)
    say("actor", keys=ray.get(reader.keys.remote()))
    ray.shutdown()
    say("done")


class Reader:
    """An actor that is given a feed."""

    def __init__(self, feed: feedline.Feed) -> None:
        self.feed = feed

    def keys(self) -> list[int]:
        return [key for batch in self.feed for key in keys_of(batch)]


def first_of_epoch(keys: list[int]) -> int:
    """The epoch whose samples these are: from the first on, in order, none left out."""
    epoch, index = divmod(keys[0], EPOCH)
    assert index == 0
    assert keys == list(range(keys[0], keys[0] + len(keys)))
    return epoch


def serve(start: Start) -> None:
    server = start(roles.serve, loader_args=[SAMPLES, 50], samples=SAMPLES, history=1.0)
    server.expect("ready")


def test_trials_that_attach_by_name(start: Start, tmp_path: Path) -> None:
    serve(start)
    driver = start(tune_on_a_feed, folder=str(tmp_path))
    assert driver.expect("tuned")["errors"] == []
    for number, size in enumerate(SIZES):
        batches = [json.loads(line) for line in (tmp_path / str(number)).open()]
        if number < GOOD:
            per_epoch = SAMPLES // size
            assert [len(batch) for batch in batches] == [size] * (EPOCHS * per_epoch)
            first, second = (
                first_of_epoch([key for batch in part for key in batch])
                for part in (batches[:per_epoch], batches[per_epoch:])
            )
            assert second == first + 1
        else:
            # ASHA stops it when the report is in; the trial may have taken the next batch by then.
            assert GRACE <= len(batches) <= GRACE + 1, "stopped in mid-epoch"
            first_of_epoch([key for batch in batches for key in batch])
    pickled = driver.expect("actor")["keys"]
    assert len(pickled) == SAMPLES
    first_of_epoch(pickled)
    driver.expect("done")


def send_to_a_spawned_process() -> None:
    spawn = multiprocessing.get_context("spawn")
    feed = feedline.attach("train", batch_size=50)
    here = iter(feed)
    next(here)
    theirs: Any = spawn.Queue()
    process = spawn.Process(target=put_keys, args=[feed, theirs])
    process.start()
    keys = theirs.get()
    process.join()
    say("read", theirs=keys, exit_code=process.exitcode, rest=sum(len(keys_of(b)) for b in here))


def put_keys(feed: feedline.Feed, keys: Any) -> None:
    keys.put(Reader(feed).keys())


def test_a_feed_is_pickled_to_a_spawned_process(start: Start) -> None:
    """It is a consumer of its own there, and the one that was pickled goes on where it was."""
    serve(start)
    read = start(send_to_a_spawned_process).expect("read")
    assert read["exit_code"] == 0
    assert len(read["theirs"]) == SAMPLES
    first_of_epoch(read["theirs"])
    assert read["rest"] == SAMPLES - 50


def test_the_example(run: Run, sharing: None) -> None:
    output = output_of(run("with_ray.py"), within_secs=TIMEOUT_SECS)
    assert output.count("2000 samples an epoch") == 3
    assert "3 trials, 1 server" in output
