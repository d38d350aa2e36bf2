"""Sentences in which one noun decides, and others stand about."""

from __future__ import annotations

from minitf.data.synthetic import SyntheticTask, check_number
from minitf.errors import ConfigError


class Attractors(SyntheticTask):
    """What sentences with attractors have in common. An attractor and what belongs to it are 3 words.

    Args:
        least, most: fewest and most attractors.

    Raises ConfigError for numbers that cannot be.
    """

    gives = "answers"

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = check_number("least", least, 0), check_number("most", most, 0)
        if least > most:
            raise ConfigError(f"data.task.least ({least}) is more than data.task.most ({most}) attractors")

    def check(self, seq_len: int) -> None:
        longest = 6 + 3 * self.most
        if seq_len < longest:
            raise ConfigError(
                f"data.seq_len ({seq_len}) must be at least {longest} for data.task.most={self.most} attractors"
            )
