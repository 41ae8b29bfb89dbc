"""How sure it is that the loader depends on what is being used.

A value that becomes a part of what ``make_loader`` returns, or decides about it, surely counts.
What is only given to a library's code beside that (a tracker, an accelerator, an optimizer) may
count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

# Options of the training, by their names. Where a library gets all options at once, it is not known
# which of them it reads; these are hardly among those that say what is loaded.
_OF_TRAINING = re.compile(
    r"""(?x) (^|_)( lr | learning_rate | weight_decay | wd | momentum | betas? | optim | optimizer
    | sched | scheduler | warmup | epochs? | max_steps | grad | amp | fp16 | bf16 | precision
    | device | gpus? | cuda | local_rank | arch | dropout | logs? | logdir | logging | logger
    | verbose | wandb | tensorboard | project | run | exp | experiment | tags? | notes? | ckpt
    | checkpoints? | resume | save | seed )(_|$)
    | ^(out|output)(_?(dir|path|folder|root|name))?$"""
)


class Certainty:
    """Whether what is used now surely counts."""

    def __init__(self) -> None:
        """Begin with what surely does."""
        self.is_sure = True

    @contextmanager
    def of(self, is_sure: bool) -> Iterator[None]:
        before, self.is_sure = self.is_sure, is_sure
        try:
            yield
        finally:
            self.is_sure = before

    @contextmanager
    def beside(self) -> Iterator[None]:
        """For what is used beside the loader."""
        with self.of(False):
            yield


def speaks_of_training(label: str) -> bool:
    """Whether an option's name says that it belongs to the training: ``args.lr``."""
    names = re.findall(r"\w+", label.lower())
    return bool(names) and _OF_TRAINING.search(names[-1]) is not None
