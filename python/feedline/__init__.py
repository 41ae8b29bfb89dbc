"""One loader, many jobs.

A feed is a log of samples in shared memory; a consumer is a cursor on it.

    feedline.serve(loader, "imagenet")                 # in one process
    feed = feedline.attach("imagenet", batch_size=96)  # in each script, instead of the loader

    feed = feedline.share(make_loader, "imagenet", batch_size=96)  # or one script, started N times

    from feedline import DataLoader                    # in place of torch.utils.data.DataLoader
"""

from typing import TYPE_CHECKING, Any

from feedline._core import __version__
from feedline._errors import (
    BatchSizeError,
    FeedEndedError,
    FeedlineError,
    FeedMemoryError,
    FeedMismatchError,
    FeedNotFoundError,
    FeedValueError,
    LoaderError,
    SamplesGoneError,
    SchemaError,
    ServerLostError,
    StalledError,
    WorkerError,
)
from feedline._feed import Feed, attach
from feedline._server import FeedInfo, Server, feeds, serve
from feedline._share import share

if TYPE_CHECKING:
    from feedline._dataloader import DataLoader

# Under the name by which users catch them.
for _error in list(vars().values()):
    if isinstance(_error, type) and issubclass(_error, FeedlineError):
        _error.__module__ = "feedline"
del _error


def __getattr__(name: str) -> Any:
    """Import what needs torch when it is first asked for."""
    if name != "DataLoader":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from feedline._dataloader import DataLoader
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise FeedlineError(
            "feedline.DataLoader is a torch DataLoader, and torch is not installed here\n"
            "  pip install torch"
        ) from error
    globals()["DataLoader"] = DataLoader
    return DataLoader


__all__ = [
    "BatchSizeError",
    "DataLoader",
    "Feed",
    "FeedEndedError",
    "FeedInfo",
    "FeedMemoryError",
    "FeedMismatchError",
    "FeedNotFoundError",
    "FeedValueError",
    "FeedlineError",
    "LoaderError",
    "SamplesGoneError",
    "SchemaError",
    "Server",
    "ServerLostError",
    "StalledError",
    "WorkerError",
    "__version__",
    "attach",
    "feeds",
    "serve",
    "share",
]
