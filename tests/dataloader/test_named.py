"""Loaders with a name: one pool for all jobs that give it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import feedline
from dataloader.datasets import Numbers, drawing, equal, numbers
from feedline import DataLoader
from support.commands import run
from support.waiting import eventually

SAMPLES = 60


def loader(samples: int = SAMPLES, **keywords: Any) -> Any:
    """One job's loader."""
    keywords = {"shuffle": True, "num_workers": 2, "linger_secs": 0.1, **keywords}
    return DataLoader(
        Numbers(samples, drawing), keywords.pop("batch_size", 8), name="named", **keywords
    )


@pytest.fixture(autouse=True)
def servers_end(folder: Path) -> Any:
    """Wait until the feed's server has gone."""
    yield
    eventually(lambda: not feedline.feeds() and not any(folder.iterdir()))


def test_two_jobs_read_one_loader_at_their_own_batch_sizes() -> None:
    with (
        loader(seed=4) as one,
        loader(seed=4, batch_size=7, num_workers=1, drop_last=True) as other,
    ):
        first, second = iter(one), iter(other)
        got, too = [next(first)], [next(second)]
        got, too = got + list(first), too + list(second)
        assert (len(got), len(too)) == (len(one), len(other)) == (8, 8)
        assert numbers(got)[: 7 * 8] == numbers(too)
        assert torch.equal(torch.cat([b[1] for b in got])[:56], torch.cat([b[1] for b in too]))
        alone = DataLoader(Numbers(SAMPLES, drawing), 8, shuffle=True, seed=4)
        assert equal(list(alone), got), "what a loader without a name gives, bit for bit"
        assert [one.samples(0, step) for step in (0, 7)] == [
            alone.samples(0, 0),
            alone.samples(0, 7),
        ]
        assert equal(other.remake(0, 3), too[3])


def test_a_job_that_wants_something_else_is_told_so() -> None:
    with loader(seed=4):
        with pytest.raises(feedline.FeedMismatchError) as caught:
            loader(SAMPLES + 1, seed=5)
        text = str(caught.value)
        assert f"dataset.samples: {SAMPLES} in the running feed" in text
        assert f"{SAMPLES + 1} here" in text
        assert "seed: 4 in the running feed" in text
        with pytest.raises(feedline.FeedMismatchError, match="shuffle"):
            loader(seed=4, shuffle=False)


def test_without_a_seed_the_servers_run_has_one() -> None:
    with loader() as one, loader() as other:
        assert one.seed == other.seed
        batches = list(one)
        assert numbers(batches[2:3]) == other.samples(0, 2)
        assert equal(other.remake(0, 2), batches[2])


def test_without_a_dataset_it_attaches() -> None:
    with loader(seed=4) as one, DataLoader(None, 5, name="named") as other:
        first, second = iter(one), iter(other)
        assert numbers([next(first)])[:5] == numbers([next(second)])
        with pytest.raises(TypeError, match="its dataset is not known here"):
            other.remake(0, 0)
    with pytest.raises(feedline.FeedNotFoundError):
        DataLoader(None, name="nobody", timeout_secs=0)
    with pytest.raises(feedline.FeedValueError, match="shuffle= belongs to the dataset"):
        DataLoader(None, shuffle=True, name="nobody")


def test_bad_arguments_are_refused_before_anything_starts() -> None:
    with pytest.raises(ValueError, match="num_workers option should be non-negative"):
        loader(num_workers=-1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'lingr'"):
        loader(lingr=3)
    assert not feedline.feeds()


def test_the_command_line_names_any_steps_samples() -> None:
    with loader(seed=4) as one:
        asked = run("which", "named", "--epoch", "0", "--step", "0").stderr
        assert "no job has begun to read" in asked
        batches = iter(one)
        next(batches)
        said = run("which", "named", "--epoch", "3", "--step", "7")
        assert [int(line) for line in said.stdout.split()] == one.samples(3, 7)
        said = run("which", "named", "--epoch", "0", "--step", "2", "--batch-size", "9", "--json")
        plan = DataLoader(Numbers(SAMPLES), 9, shuffle=True, seed=4)
        expected = {"epoch": 0, "step": 2, "seed": 4, "samples": plan.samples(0, 2)}
        assert json.loads(said.stdout) == expected
        assert (
            "has 8 steps of 8 samples"
            in run("which", "named", "--epoch", "0", "--step", "8").stderr
        )
        with loader(seed=4, batch_size=5) as other:
            too = iter(other)
            next(too)
            asked = run("which", "named", "--epoch", "0", "--step", "0").stderr
            assert "jobs have 5, 8" in asked
            assert "--batch-size" in asked
    with feedline.Server([torch.zeros(4)], "plain"):
        assert "has no plan" in run("which", "plain", "--epoch", "0", "--step", "0").stderr


def test_switched_off_it_is_a_loader_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEEDLINE_MODE", "off")
    alone = loader(seed=4, num_workers=0)
    assert isinstance(alone, DataLoader)
    assert sorted(numbers(alone)) == list(range(SAMPLES))
    assert not feedline.feeds()


def test_jobs_may_differ_in_what_is_their_own() -> None:
    own = {"batch_size": 5, "drop_last": True, "prefetch_factor": 3, "with_ids": True}
    with (
        loader(seed=4, num_workers=0) as one,
        loader(seed=4, num_workers=2, in_order=False, timeout=30, **own) as other,
    ):
        assert one.stats()["server_pid"] == other.stats()["server_pid"]


def test_what_is_a_default_may_be_said() -> None:
    with loader(shuffle=None) as one, loader(shuffle=False) as other:
        assert one.stats()["server_pid"] == other.stats()["server_pid"]


@pytest.mark.parametrize(
    ("different", "named"),
    [
        ({"generator": torch.Generator()}, "generator"),
        ({"worker_init_fn": print}, "name of worker_init_fn: not used"),
        ({"collate_fn": list}, "name of collate_fn: not used in the running feed"),
        ({"shuffle": None, "sampler": [1, 2]}, "sampler"),
        ({"seed": None}, "seed: 4 in the running feed"),
        ({"replay": True}, "replay: not used in the running feed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_jobs_may_not_differ_in_what_is_loaded(different: dict[str, Any], named: str) -> None:
    with loader(seed=4), pytest.raises(feedline.FeedMismatchError, match=named):
        loader(**{"seed": 4, **different})
