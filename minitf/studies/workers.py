"""Processes that work through tasks side by side, each with one thread; they are started once."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any


class Workers:
    """A few processes that call `work(task)`; a context, at whose end they are gone.

    A process that dies takes its task with it and no other: `work_through` gives its exit code, and a new one begins.

    Args:
        n: how many.
        work: a function of a module, called with a task in one of them.
    """

    def __init__(self, n: int, work: Callable[[Any], Any]) -> None:
        self.n, self.work = n, work
        self._context = multiprocessing.get_context("spawn")
        self._busy: dict[Connection, Any] = {}
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
        """
        while True:
            while len(self._busy) < self.n and (task := take()) is not None:
                connection = self._idle.pop() if self._idle else self._start()
                self._busy[connection] = task
                connection.send(task)
            if not self._busy:
                return
            for connection in wait(list(self._busy)):
                task = self._busy.pop(connection)
                try:
                    found, code = connection.recv(), None
                    self._idle.append(connection)
                except EOFError:
                    process = self._processes.pop(connection)
                    process.join()
                    connection.close()
                    found, code = None, process.exitcode
                yield task, found, code

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
    with suppress(EOFError, BrokenPipeError):
        while True:
            connection.send(work(connection.recv()))
