"""Time several contenders in turn, A B C A B C, so that a drift of the machine meets all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"cpu": time.process_time, "wall": time.perf_counter}


@dataclass
class Timing:
    """Seconds per step of one contender, one number per round.

    Attributes:
        name: what was timed.
        tokens: tokens per step.
        seconds: one figure per round.
    """

    name: str
    tokens: int
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def row(self, fastest: float) -> str:
        """One line of the table."""
        ms = [1e3 * s for s in (self.median, min(self.seconds), max(self.seconds))]
        return (
            f"{self.name:<44} {ms[0]:9.1f} [{ms[1]:.1f}, {ms[2]:.1f}]".ljust(80)
            + f"{self.tokens / self.median:>10,.0f} {self.median / fastest:>7.2f}"
        )


def interleave(contenders: dict[str, Callable[[], float]], tokens: dict[str, int], rounds: int) -> list[Timing]:
    """Run every contender once a round.

    Args:
        contenders: name -> function that runs some steps and returns seconds per step; the first call warms up.
        tokens: tokens per step of each.
        rounds: rounds that count.
    """
    timings = [Timing(name, tokens[name]) for name in contenders]
    for round_number in range(rounds + 1):
        for timing in timings:
            seconds = contenders[timing.name]()
            if round_number > 0:
                timing.seconds.append(seconds)
    return timings


def ratios(slow: Timing, fast: Timing) -> list[float]:
    """How many times faster `fast` is, round by round."""
    return [s / f for s, f in zip(slow.seconds, fast.seconds, strict=True)]


def table(timings: list[Timing]) -> str:
    """All contenders, the fastest first."""
    ordered = sorted(timings, key=lambda t: t.median)
    head = f"{'contender':<44} {'ms per step: median [min, max]':<35}{'tokens/s':>10} {'ratio':>7}"
    return "\n".join([head, *(t.row(ordered[0].median) for t in ordered)])
