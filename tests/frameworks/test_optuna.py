"""Optuna: four processes on one study and one feed, with trials that are pruned in mid-epoch."""

from __future__ import annotations

import logging
import re
from collections import Counter
from pathlib import Path
from typing import Any

import feedline
from conftest import Start
from frameworks.conftest import RunTwice
from support import roles
from support.child import say
from support.loaders import EPOCH
from support.reading import is_exact, keys_of

SAMPLES = 600
EPOCHS = 2
TRIALS = 6
PRUNED_AFTER = 3  # batches


def search(journal: str, keep_feed: bool) -> None:
    """Run trials; every other one is pruned. One feed for all of them, or one for each."""
    import optuna

    storage = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(journal),
    )
    # Some are bad from the start, so it is known which ones end early.
    pruner = optuna.pruners.ThresholdPruner(upper=1.0)
    study = optuna.create_study(
        study_name="s", storage=storage, pruner=pruner, load_if_exists=True, direction="minimize"
    )
    optuna.logging.get_logger("optuna").setLevel(logging.WARNING)
    kept = feedline.attach("train", batch_size=32) if keep_feed else None

    def objective(trial: Any) -> float:
        batch_size = trial.suggest_int("batch_size", 8, 64)
        feed = kept or feedline.attach("train", batch_size=batch_size)
        epochs: list[list[int]] = []
        step = 0
        try:
            for _ in range(EPOCHS):
                epochs.append([])
                for batch in feed:
                    assert is_exact(batch)
                    epochs[-1].extend(keys_of(batch))
                    step += 1
                    trial.report(2.0 if trial.number % 2 else 0.5, step)
                    if step == PRUNED_AFTER and trial.should_prune():
                        raise optuna.TrialPruned
        finally:
            say("trial", number=trial.number, epochs=epochs)
        return 0.5

    study.optimize(objective, n_trials=TRIALS)
    say("done")


def is_run_of_one_epoch(keys: list[int]) -> bool:
    """Whether it is an epoch's samples from the first on, in order, none left out."""
    start = keys[0]
    return start % EPOCH == 0 and keys == list(range(start, start + len(keys)))


def test_four_processes_on_one_study(start: Start, tmp_path: Path) -> None:
    # A trial that comes late, or after a pruned one, gets the running epoch whole.
    server = start(roles.serve, loader_args=[SAMPLES, 50], samples=SAMPLES, history=1.0)
    server.expect("ready")
    journal = str(tmp_path / "journal")
    jobs = [start(search, journal=journal, keep_feed=number % 2 == 0) for number in range(4)]
    trials = []
    for job in jobs:
        trials += [job.expect("trial") for _ in range(TRIALS)]
        job.expect("done")
    assert sorted(trial["number"] for trial in trials) == list(range(4 * TRIALS))
    for trial in trials:
        assert all(map(is_run_of_one_epoch, trial["epochs"])), trial
        if trial["number"] % 2:
            assert len(trial["epochs"]) == 1, "pruned in its first epoch"
            assert len(trial["epochs"][0]) < SAMPLES
        else:
            first, second = trial["epochs"]
            assert len(first) == len(second) == SAMPLES
            assert second[0] == first[0] + EPOCH


def test_the_example(run_twice: RunTwice) -> None:
    lines = [line for output in run_twice("with_optuna.py") for line in output.splitlines()]
    states = Counter(re.findall(r"trial \d+ (complete|pruned)", "\n".join(lines)))
    assert states.total() == 10, lines
    assert states["complete"] > 0, lines
