"""A wish to stop: signals that, while a model is trained, wait for the end of the step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any


class Interrupted(BaseException):
    """Somebody asked the process to stop. No `except Exception` may swallow it.

    Args:
        name: of the signal, for example "SIGTERM".
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    @property
    def code(self) -> int:
        """Return the exit code that a shell expects: 128 + the signal's number."""
        return 128 + signal.Signals[self.name].value


class StopSignals:
    """Turn SIGINT, SIGTERM and SIGHUP into Interrupted; a context.

    They act at once, but while `deferred` the first one only sets `requested`, and a second one acts at once.
    A SIGHUP that the process was told to ignore (nohup) stays ignored. Outside of the main thread, which alone
    may handle signals, it does nothing.

    Attributes:
        requested: name of the signal that came first; None before.
    """

    def __init__(self) -> None:
        self.requested: str | None = None
        self._deferred = False
        self._earlier: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopSignals":
        self.requested = None
        if threading.current_thread() is threading.main_thread():
            self._earlier = {number: signal.getsignal(number) for number in _numbers()}
            self.take_over()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._earlier.items():
            signal.signal(number, handler)
        self._earlier = {}

    def take_over(self) -> None:
        """Handle the signals from now on, whoever has put another handler in place meanwhile."""
        for number in self._earlier:
            signal.signal(number, self._handle)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Let a signal wait until somebody asks for `requested`, at the latest until the end of the block.

        Raises:
            Interrupted: at the end, if a signal came that nobody has acted upon.
        """
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False
        if self.requested:
            raise Interrupted(self.requested)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self._deferred and self.requested is None:
            self.requested = name
            return
        self.requested = name
        raise Interrupted(name)


def _numbers() -> list[signal.Signals]:
    known = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    return [n for n in known if n.name != "SIGHUP" or signal.getsignal(n) is not signal.SIG_IGN]
