"""Processes that die take at most their own task with them; a mistake found in one of them is raised in the first."""

import os
import signal
from collections.abc import Callable

import pytest

from minitf.errors import DataError
from minitf.studies.workers import Workers

pytestmark = pytest.mark.slow  # each process imports torch


def double(task: int | str) -> int:
    if task == "ends":
        os._exit(7)
    if task == "mistaken":
        raise DataError("no space")
    return 2 * task


def work_through(workers: Workers, tasks: list[int | str], after: Callable[[], object] = lambda: None):
    """What became of each task; `after` is called when the first is done."""
    waiting, ended = iter(tasks), {}
    for task, found, code in workers.work_through(lambda: next(waiting, None)):
        ended[task] = found if code is None else f"code {code}"
        if len(ended) == 1:
            after()
    return ended


class Killed(Workers):
    """The processes of the first few tasks that are given are killed before they can read them."""

    def __init__(self, n: int, n_killed: int) -> None:
        super().__init__(n, double)
        self.n_killed, self.n_given = n_killed, 0

    def _give(self, given):
        super()._give(given)
        self.n_given += 1
        if self.n_given <= self.n_killed:
            self.kill()

    def kill(self):
        """Kill the newest."""
        process = list(self._processes.values())[-1]
        process.kill()
        process.join()


def test_a_task_that_had_not_begun_is_given_to_a_new_process_once():
    with Killed(1, n_killed=1) as workers:
        assert work_through(workers, [1, 2]) == {1: 2, 2: 4}
        assert workers.n_given == 3
    with Killed(1, n_killed=2) as workers:
        assert work_through(workers, [1]) == {1: f"code {-signal.SIGKILL}"}


def test_a_process_that_dies_while_idle_takes_nothing_with_it():
    with Killed(1, n_killed=0) as workers:
        assert work_through(workers, [1, 2], workers.kill) == {1: 2, 2: 4}


def test_a_task_that_had_begun_is_lost_with_its_process_and_a_mistake_is_raised_here():
    with Killed(1, n_killed=0) as workers:
        assert work_through(workers, ["ends", 1]) == {"ends": "code 7", 1: 2}
        assert workers.n_given == 2, "it is not tried again"
        with pytest.raises(DataError, match="no space"):
            work_through(workers, ["mistaken"])
