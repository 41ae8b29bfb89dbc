"""One loader, many jobs.

A feed is a log of samples in shared memory; a consumer is a cursor on it.

    feedline.serve(loader, "imagenet")                 # in one process
    feed = feedline.attach("imagenet", batch_size=96)  # in each script, instead of the loader

    feed = feedline.share(make_loader, "imagenet", batch_size=96)  # or one script, started N times
"""

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
)
from feedline._feed import Feed, attach
from feedline._server import FeedInfo, Server, feeds, serve
from feedline._share import share

# Under the name by which users catch them.
for _error in list(vars().values()):
    if isinstance(_error, type) and issubclass(_error, FeedlineError):
        _error.__module__ = "feedline"
del _error

__all__ = [
    "BatchSizeError",
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
    "__version__",
    "attach",
    "feeds",
    "serve",
    "share",
]
