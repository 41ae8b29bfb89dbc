"""What goes wrong, by what one can do about it; each is also the built-in error to expect."""


class FeedlineError(Exception):
    """Everything that Feedline raises on its own account."""


class FeedNotFoundError(FeedlineError, TimeoutError):
    """Nobody served a feed of that name within the time."""


class ServerLostError(FeedlineError, ConnectionError):
    """The server died or was stopped. What was read so far was right."""


class LoaderError(FeedlineError):
    """The loader raised, in the server's process; its own traceback is in the message."""


class SchemaError(FeedlineError, TypeError):
    """The loader yielded what a feed can't carry, or changed its types or shapes."""


class BatchSizeError(FeedlineError, ValueError):
    """A batch size that this feed can't give."""


class StalledError(FeedlineError):
    """Somebody stood still for too long: the loader, the server, or this consumer."""


class SamplesGoneError(FeedlineError, LookupError):
    """The samples after a saved place are no longer in the feed."""


class FeedEndedError(FeedlineError):
    """All epochs of the feed are over."""


class FeedValueError(FeedlineError, ValueError):
    """An argument that can't be."""


class FeedMemoryError(FeedlineError, MemoryError):
    """A ring that doesn't fit into memory."""
