"""Processes that work through tasks side by side, each with one thread; they are started once."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from minitf.errors import ConfigError, DataError

_BEGUN = None  # what a process sends when it has read its task; then comes what `work` gave, and an error


@dataclass
class _Given:
    """A task that a process has.

    Args:
        task: as it was taken.
        again: its first process died before it had begun.
        begun: the process has read it.
    """

    task: Any
    again: bool = False
    begun: bool = False


class Workers:
    """A few processes that call `work(task)`; a context, at whose end they are gone.

    A process that dies takes its task with it and no other: `work_through` gives its exit code, and a new one begins.
    A task that had not begun is given to a new one, once.

    Args:
        n: how many.
        work: a function of a module, called with a task in one of them. A ConfigError or DataError that it raises is
            raised by `work_through`.
    """

    def __init__(self, n: int, work: Callable[[Any], Any]) -> None:
        self.n, self.work = n, work
        self._context = multiprocessing.get_context("spawn")
        self._busy: dict[Connection, _Given] = {}
        self._idle: list[Connection] = []
        self._processes: dict[Connection, multiprocessing.process.BaseProcess] = {}

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes.values():
            process.terminate()
        for connection, process in self._processes.items():
            process.join()
            connection.close()
        self._processes.clear()

    def work_through(self, take: Callable[[], Any | None]) -> Iterator[tuple[Any, Any, int | None]]:
        """Work until nothing is left to take and all is done.

        Args:
            take: gives the next task that can be begun now, or None; it is asked again after each one that is done.

        Returns:
            Task, what `work` gave, and the exit code of the process if it has died (there is no result then).

        Raises:
            ConfigError, DataError: `work` did.
        """
        while True:
            while len(self._busy) < self.n and (task := take()) is not None:
                self._give(_Given(task))
            if not self._busy:
                return
            for connection in wait(list(self._busy)):
                if (ended := self._hear(connection)) is not None:
                    yield ended

    def _give(self, given: _Given) -> None:
        """Send a task to an idle process, or to a new one; the second time to a new one: an idle one may be dead."""
        connection = self._idle.pop() if self._idle and not given.again else self._start()
        self._busy[connection] = given
        with suppress(ConnectionError):  # it is dead, which `_hear` finds: our end is ready to be read then
            connection.send(given.task)

    def _hear(self, connection: Connection) -> tuple[Any, Any, int | None] | None:
        """Read what a process sends, or that it has died; None while its task goes on, or begins again."""
        given = self._busy[connection]
        try:
            told = connection.recv()
        except (EOFError, OSError):  # OSError: it died before it had read all, or before it had sent all
            del self._busy[connection]
            code = self._remove(connection)
            if given.begun or given.again:
                return given.task, None, code
            self._give(_Given(given.task, again=True))
            return None
        if told is _BEGUN:
            given.begun = True
            return None
        found, error = told
        if error is not None:
            raise error
        del self._busy[connection]
        self._idle.append(connection)
        return given.task, found, None

    def _remove(self, connection: Connection) -> int | None:
        """Forget a process that has died; its exit code."""
        process = self._processes.pop(connection)
        process.join()
        connection.close()
        return process.exitcode

    def _start(self) -> Connection:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, self.work), daemon=True)
        before = os.environ.get("OMP_NUM_THREADS")
        os.environ["OMP_NUM_THREADS"] = "1"  # must be said before torch is imported there
        try:
            process.start()
        finally:
            if before is None:
                del os.environ["OMP_NUM_THREADS"]
            else:
                os.environ["OMP_NUM_THREADS"] = before
        theirs.close()  # else the end of the process would not be noticed
        self._processes[ours] = process
        return ours


def _serve(connection: Connection, work: Callable[[Any], Any]) -> None:
    """Work until the other side is gone. Ctrl-C reaches all processes of a terminal: the first one ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch

    torch.set_num_threads(1)
    with suppress(EOFError, ConnectionError):
        while True:
            task = connection.recv()
            connection.send(_BEGUN)
            try:
                told = work(task), None
            except (ConfigError, DataError) as error:  # the first process tells it, once for all
                told = None, error
            connection.send(told)
