from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, Self, final

__all__ = [
    "MOST_EPOCHS_AHEAD",
    "Batches",
    "Exported",
    "FeedCore",
    "ServerCore",
    "__version__",
    "begin_run",
    "check_name",
    "cli",
    "end_run",
    "feeds",
    "folder",
    "folder_path",
    "parse_size",
]

MOST_EPOCHS_AHEAD: int
__version__: str

@final
class FeedCore:
    def __new__(
        cls,
        name: str,
        *,
        batch_size: int | None,
        drop_last: bool,
        join: str,
        timeout_secs: float,
        format: str | None,
        mode: str,
        reconnect_secs: float,
        allow_pickle: bool,
        allow: tuple[list[int], list[int]],
        shard: tuple[int, int, int] | None,
        when_missing: Callable[[], object] | None,
    ) -> Self: ...
    @property
    def is_inherited(self) -> bool: ...
    @property
    def yields_torch(self) -> bool: ...
    @property
    def closed(self) -> bool: ...
    @property
    def epoch(self) -> int: ...
    @property
    def batch_size(self) -> int | None: ...
    def batches_per_epoch(self) -> int | None: ...
    def samples_per_epoch(self) -> int | None: ...
    def iterate(self, seat: Any) -> Batches: ...
    def close(self) -> None: ...
    @property
    def order(self) -> str: ...
    def position(self) -> tuple[int, int]: ...
    def resume_at(self, epoch: int, index: int, order: str | None) -> None: ...
    def stats(self) -> dict[str, Any]: ...

@final
class Batches(Iterator[Any]):
    @property
    def samples(self) -> int: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class Exported:
    def __dlpack__(self, **_kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

@final
class ServerCore:
    def __new__(
        cls,
        name: str,
        *,
        epochs: int | None,
        samples: int | None,
        wait_for: int,
        ring_bytes: int | None,
        ring_samples: int | None,
        history_bytes: int | None,
        history_share: float | None,
        history_dir: str | None,
        replay: bool,
        lag: str,
        epochs_ahead: int,
        resume: tuple[int, int] | None,
        run: int | None,
        order: str,
        stall_timeout_secs: float,
        linger_secs: float | None,
        first_consumer_secs: float | None,
        whole_batches: bool,
        loader_warn_secs: float | None,
        loader_timeout_secs: float | None,
        allow: tuple[list[int], list[int]],
        metrics_port: int | None,
        metrics_file: str | None,
        metrics_interval_secs: float,
        beside: ServerCore | None = None,
    ) -> Self: ...
    def run(
        self,
        loader: Any,
        begin: Callable[[int], None],
        mark: Callable[[tuple[int, int], tuple[int, int], tuple[int, int] | None], None] | None,
        *,
        samples: int | None,
        batches: int | None,
        batch_size: int | None,
        allow_pickle: bool,
    ) -> None: ...
    @property
    def samples_per_epoch(self) -> int | None: ...
    def fail(self, message: str, raised: BaseException) -> NoReturn: ...
    def gave_up(self) -> str | None: ...
    def stop(self, why: str) -> None: ...
    def stats(self) -> dict[str, Any]: ...

def cli(args: list[str], command: list[str]) -> tuple[int | None, str, str]: ...
def begin_run(name: str, before: int | None) -> tuple[int, str | None]: ...
def check_name(name: str) -> None: ...
def end_run(name: str) -> None: ...
def parse_size(text: str) -> int | None: ...
def feeds() -> list[tuple[str, int, str]]: ...
def folder() -> Path: ...
def folder_path() -> Path: ...
