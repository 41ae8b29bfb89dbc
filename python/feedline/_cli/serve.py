"""``feedline serve``: a loader from a file or a module, served until it is over or asked to end.

The loader runs in the main thread, as in a script of its own. A second thread shows how things
stand, handles signals, and ends the process even if the loader hangs.

```text
serving ──epochs done and read──▶ 0          ──Ctrl-C──▶ consumers get the reason ──▶ 130
   │    ──the loader raises─────▶ 1          ──again, or no answer for a while──▶ killed
   └────SIGTERM, SIGHUP, `feedline stop`, nobody left (--linger-secs)──▶ 0
```
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import threading
import time
from time import monotonic
from typing import Any, NoReturn

from feedline._cli.descendants import end_descendants
from feedline._cli.failure import (
    CommandFailedError,
    UsageError,
    in_flags,
    report,
    say,
    trace_of,
)
from feedline._cli.maker import alone, make
from feedline._cli.progress import Progress, counted
from feedline._cli.screen import Screen
from feedline._cli.signals import Early, Signals
from feedline._core import ServerCore, check_name
from feedline._errors import FeedlineError, FeedValueError, LoaderError
from feedline._options import check_options
from feedline._seeding import seed_before_making
from feedline._server import Server, feeds
from feedline._server_options import ServerOptions

_LOOK_SECS = 0.2
# After the feed's end the loader is interrupted, and then killed with its workers.
_INTERRUPT_SECS = 1.0
_KILL_SECS = 4.0
# After a good end the loader's modules may have something to finish.
_LEAVE_SECS = 30.0
# What interrupts the main thread.
_NUDGE = signal.SIGTERM


def run(maker: dict[str, Any], name: str, options: ServerOptions) -> int:
    """Serve; gives the exit code."""
    screen = Screen()
    logging.getLogger("feedline").addHandler(_ToScreen(screen))
    # Before the loader's modules register theirs: those are called first.
    atexit.register(end_descendants, signal.SIGTERM)
    early = Early(_kill_early)
    serving = None
    try:
        # A loader may take minutes to make: what was mistyped should not wait for it.
        _check(name, options)
        _check_is_free(name)
        seed_before_making(options.get("seed"))
        loader = make(**maker)
        server = _server(loader, name, options)
        serving = _Serving(server, _bound(server, name), maker, screen)
        del loader
    except CommandFailedError as error:
        if early.number is None:
            return report(error)
    except KeyboardInterrupt:
        early.number = early.number or signal.SIGINT
    # What is being imported may have swallowed it.
    if serving is None or early.number is not None:
        if serving is not None:
            server.stop()
        say("interrupted before the feed began")
        return _exit_code(early.number or signal.SIGINT)
    return serving.run()


def _kill_early(number: int) -> NoReturn:
    end_descendants(signal.SIGKILL)
    os._exit(_exit_code(number))


def _server(loader: Any, name: str, options: ServerOptions) -> Server:
    try:
        server = Server(loader, name, **options)
    except FeedlineError as error:
        raise _as_typed(error) from None
    server._launch["for_command_line"] = True
    return server


def _check(name: str, options: ServerOptions) -> None:
    """Check everything that can be checked without the loader."""
    try:
        check_name(name)
        check_options(options)
    except FeedlineError as error:
        raise _as_typed(error) from None


def _as_typed(error: FeedlineError) -> CommandFailedError:
    """The same error, for the user who typed the command."""
    is_misuse = isinstance(error, FeedValueError)
    return (UsageError if is_misuse else CommandFailedError)(in_flags(error))


def _check_is_free(name: str) -> None:
    for feed in feeds():
        if feed.name == name:
            raise CommandFailedError(
                f'a feed named "{name}" is running already (pid {feed.pid})\n'
                f'  attach to it with: feedline.attach("{name}"); end it with: feedline stop '
                f"{name}; or choose another name"
            )


def _bound(server: Server, name: str) -> ServerCore:
    try:
        return server._bind()
    except FeedlineError as error:
        raise CommandFailedError(in_flags(error)) from None
    except OSError as error:
        raise CommandFailedError(str(error)) from None


class _Serving:
    """A feed from its first batch to its end."""

    def __init__(
        self, server: Server, core: ServerCore, maker: dict[str, Any], screen: Screen
    ) -> None:
        self._server, self._core, self._maker, self._screen = server, core, maker, screen
        self._progress = Progress(screen)
        self._signals = Signals(self._end_by)
        # The signal that ended the feed, if one did.
        self._number: int | None = None
        self._is_announced = False
        self._is_done = threading.Event()

    def run(self) -> int:
        self._welcome()
        watch = threading.Thread(target=self._watch, name="feedline-watch", daemon=True)
        watch.start()
        error = self._serve()
        self._is_done.set()
        watch.join()
        code = self._tell_end(error)
        # Whatever the loader left running must not keep this process.
        threading.Thread(target=self._expire, args=(code,), daemon=True).start()
        return code

    def _welcome(self) -> None:
        stats = self._core.stats()
        self._progress.show(stats)
        name, epochs = stats["name"], stats["epochs"]
        until = "until Ctrl-C" if epochs is None else f"for {counted(epochs, 'epoch')}"
        linger = self._server._options["linger_secs"]
        if linger is not None:
            until += f", or until {linger:g} s after the last consumer has left"
        port = stats["metrics_port"]
        numbers = (
            "" if port is None else f"\n  numbers for Prometheus: http://127.0.0.1:{port}/metrics"
        )
        self._screen.line(
            f'serving "{name}" (pid {os.getpid()}) {until}\n'
            f'  attach with: feedline.attach("{name}", batch_size=...){numbers}'
        )

    def _serve(self) -> BaseException | None:
        """Iterate the loader: what it raised."""
        try:
            try:
                self._signals.is_loading = True
                self._server._run(self._core)
            finally:
                self._signals.is_loading = False
                self._server.stop()
        except BaseException as error:
            return error
        return None

    def _watch(self) -> None:
        """Show how things stand until all is done; end what doesn't end by itself."""
        ended_at: float | None = None
        signals_heard, has_interrupted = 0, False
        while not self._is_done.is_set():
            stats = self._core.stats()
            self._progress.show(stats)
            if stats["state"] not in ("starting", "running"):
                ended_at = ended_at or monotonic()
                if stats["state"] == "stopped":
                    self._announce(stats)
                passed = monotonic() - ended_at
                if passed > _KILL_SECS:
                    self._kill(self._tell_end(None), "the loader has not ended")
                if passed > _INTERRUPT_SECS and not has_interrupted:
                    has_interrupted = True
                    signal.pthread_kill(threading.main_thread().ident or 0, _NUDGE)
            number = self._signals.hear(_LOOK_SECS if ended_at is None else 0.05)
            if number is None or (number == _NUDGE and has_interrupted):
                continue
            signals_heard += 1
            if signals_heard > 1:
                self._kill(_exit_code(number), "asked for twice")
            self._end_by(number)
        self._progress.show(self._core.stats())
        self._screen.status("")

    def _end_by(self, number: int) -> None:
        """Send consumers the reason; called by the thread that notices the signal first."""
        if self._core.stats()["state"] not in ("starting", "running"):
            return
        self._number = number
        if number == signal.SIGINT:
            self._core.stop("it was interrupted (Ctrl-C)")
        else:
            self._core.stop(f"it was told to stop ({signal.Signals(number).name})")

    def _announce(self, stats: dict[str, Any]) -> None:
        """Say once who stopped the feed."""
        if self._is_announced:
            return
        self._is_announced = True
        why = [event["text"] for event in stats["events"] if event["kind"] == "stopped"][-1]
        self._screen.line(f'feed "{stats["name"]}" ended {self._progress.summary(stats)}: {why}')

    def _tell_end(self, error: BaseException | None) -> int:
        """Say how it ended: the exit code."""
        stats = self._core.stats()
        if self._number is not None:
            self._announce(stats)
            return _exit_code(self._number)
        if stats["state"] == "stopped" and (error is None or isinstance(error, KeyboardInterrupt)):
            self._announce(stats)
            return 0
        if stats["state"] == "ended":
            self._screen.line(f'feed "{stats["name"]}" is done: {self._progress.summary(stats)}')
            return 0
        return report(CommandFailedError(self._failure(error)))

    def _failure(self, error: BaseException | None) -> str:
        name = self._server.name
        gave_up = self._core.gave_up()
        if gave_up is not None:
            # What the loader raised since, it raised because it was interrupted.
            return gave_up.for_command_line()
        if error is None:
            return f'feed "{name}" failed\n  read the log above'
        if isinstance(error, FeedlineError) and not isinstance(error, LoaderError):
            return in_flags(error)
        cause = error.__cause__ or error
        said = str(cause).partition("\n")[0]
        return (
            f'feed "{name}" failed: its loader raised {type(cause).__name__}: {said}\n'
            f"{trace_of(cause)}\n  try it alone: {alone(**self._maker)}"
        )

    def _expire(self, code: int) -> None:
        time.sleep(_KILL_SECS if code else _LEAVE_SECS)
        self._kill(code, "the loader keeps something running")

    def _kill(self, code: int, why: str) -> NoReturn:
        self._screen.status("")
        self._screen.line(f"  {why}: killed")
        end_descendants(signal.SIGKILL)
        os._exit(code)


def _exit_code(number: int) -> int:
    return 130 if number == signal.SIGINT else 0


class _ToScreen(logging.Handler):
    """Shows warnings above the bar, unless the loader's module has set up logging itself.

    An error ends the feed, and is reported then.
    """

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.WARNING)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.ERROR and not logging.getLogger().handlers:
            self._screen.line(f"{record.levelname.lower()}: {record.getMessage()}")
