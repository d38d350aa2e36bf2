"""How far the cells are: one line for each that is done, with the time that is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping


class Progress:
    """Tell each finished cell and guess how long the rest takes.

    Args:
        waiting: study -> how many of its cells (with each seed) are to be done.
        n_jobs: how many are done at a time.
        say: is called with a line.
    """

    def __init__(self, waiting: Mapping[str, int], n_jobs: int, say: Callable[[str], object]) -> None:
        self.waiting, self.n_jobs, self.say = dict(waiting), n_jobs, say
        self.of = sum(waiting.values())
        self._spent: dict[str, list[float]] = {}
        self._begun = time.monotonic()

    def done(self, study: str, what: str, seconds: float, error: str = "") -> None:
        """Tell one cell.

        Args:
            study: of it.
            what: its names.
            seconds: that it took.
            error: why it failed; "" where it did not.
        """
        self.waiting[study] -= 1
        self._spent.setdefault(study, []).append(seconds)
        n = self.of - sum(self.waiting.values())
        left = self.left()
        end = f"about {clock(left)} left" if n < self.of else f"{clock(time.monotonic() - self._begun)} in all"
        failed = f"  FAILED: {error.splitlines()[0]}" if error else ""
        self.say(f"[{n}/{self.of}] {what}  {seconds:.1f} s, {end}{failed}")

    def left(self) -> float:
        """Seconds until the last cell is done, guessed from cells of the same study, else from all so far."""
        every = [seconds for of in self._spent.values() for seconds in of]
        if not every:
            return 0.0
        mean = {study: sum(of) / len(of) for study, of in self._spent.items()}
        usual = sum(every) / len(every)
        total = sum(n * mean.get(study, usual) for study, n in self.waiting.items())
        return total / max(1, min(self.n_jobs, sum(self.waiting.values())))


def clock(seconds: float) -> str:
    """Minutes and seconds, such as "2:05"; with hours where there are any."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
