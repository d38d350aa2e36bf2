"""A wish to stop: signals that act at once, or wait where the work must not be cut in two.

Imports nothing heavy: the command line handles signals before anything else is known.
"""

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

    Attributes:
        told: the user has been told.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name
        self.told = False

    @property
    def code(self) -> int:
        """Return the exit code that a shell expects: 128 + the signal's number."""
        return 128 + signal.Signals[self.name].value


class StopSignals:
    """Turn SIGINT, SIGTERM and SIGHUP into Interrupted; a context, which may be entered again inside of itself.

    They act at once, but while they are held the first one only sets `requested`, and a second one acts at once.
    A process that is about to end because of one ignores the others. A SIGHUP that the process was told to ignore
    (nohup) stays ignored. Outside of the main thread, which alone may handle signals, it does nothing.

    Attributes:
        requested: name of the signal that came first; None before.
    """

    def __init__(self) -> None:
        self.requested: str | None = None
        self._held = False
        self._depth = 0
        self._earlier: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopSignals":
        self._depth += 1
        if self._depth == 1 and threading.current_thread() is threading.main_thread():
            self._earlier = {number: signal.getsignal(number) for number in _numbers()}
            self.take_over()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._depth -= 1
        if self._depth == 0:
            for number, handler in self._earlier.items():
                signal.signal(number, signal.SIG_IGN if self.requested else handler)
            self._earlier = {}

    def take_over(self) -> None:
        """Handle the signals from now on, whoever has put another handler in place or blocked them meanwhile."""
        for number in self._earlier:
            signal.signal(number, self._handle)
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._earlier)

    def block(self) -> None:
        """Let signals wait outside until `take_over`; a process that is started meanwhile begins with them blocked."""
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_BLOCK, self._earlier)

    def ignore(self) -> None:
        """Let no further signal disturb what is done before the end."""
        for number in self._earlier:
            signal.signal(number, signal.SIG_IGN)

    def hold(self) -> None:
        """Let a signal wait until somebody asks for `requested`, or releases it."""
        self._held = True

    def release(self) -> None:
        """Let signals act at once again.

        Raises:
            Interrupted: one came meanwhile.
        """
        self._held = False
        if self.requested:
            raise Interrupted(self.requested)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Hold signals for a block, and then release them, unless they were held before.

        Raises:
            Interrupted: at the end, if a signal came that nobody has acted upon.
        """
        before = self._held
        self.hold()
        try:
            yield
        finally:
            self._held = before
        if not before:
            self.release()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self._held and self.requested is None:
            self.requested = name
            return
        self.requested = name
        self.ignore()
        raise Interrupted(name)


def _numbers() -> list[signal.Signals]:
    known = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    return [n for n in known if n.name != "SIGHUP" or signal.getsignal(n) is not signal.SIG_IGN]
