"""Sorting by pointing."""

from __future__ import annotations

import numpy as np

from minitf.data.synthetic import IGNORED, NO_SOURCE, Rows, SyntheticTask, check_number, lengths, places
from minitf.errors import ConfigError


class SortPointer(SyntheticTask):
    """Read 2 to T different numbers and point at them in rising order. Source of the task: Vinyals et al. 2015 (a).

    The target is a place of the source, not a number. The decoder reads the start (id n_numbers) and then the numbers
    that it pointed at. A step is solved by attending to the smallest number above the last one. Pointing at any place
    that is left is right with chance 1/(places left).

    Args:
        n_numbers: numbers 0 to n_numbers-1 occur.
    """

    gives = "pointer"
    roles = ("sort",)
    question = ("src", "src_pos")

    def __init__(self, n_numbers: int) -> None:
        self.n_numbers = check_number("n_numbers", n_numbers, 3)
        self.vocab_size = n_numbers + 1
        self.src_vocab_size = self.vocab_size  # one table can serve both sides

    def check(self, seq_len: int) -> None:
        if not 2 <= seq_len <= self.n_numbers:
            raise ConfigError(
                f"data.seq_len ({seq_len}) must lie between 2 and data.task.n_numbers ({self.n_numbers}): no number "
                "occurs twice in a row"
            )

    def rows(self, rng: np.random.Generator, n: int, seq_len: int) -> Rows:
        _, real = lengths(rng, n, 2, seq_len)
        src = rng.permuted(np.tile(np.arange(self.n_numbers), (n, 1)), axis=1)[:, :seq_len]
        order = np.argsort(np.where(real, src, self.n_numbers), axis=1, kind="stable")
        start = np.full((n, 1), self.n_numbers)
        read = np.concatenate([start, np.take_along_axis(src, order, 1)[:, :-1]], 1)
        return {
            "src": np.where(real, src, 0),
            "src_pos": places(real),
            "ids": np.where(real, read, 0),
            "pos": places(real),
            "targets": np.where(real, order, IGNORED),
            "gold.sort": np.where(real, order, NO_SOURCE)[:, :, None],
        }

    def symbols(self, ids: list[int]) -> list[str]:
        return ["[start]" if i == self.n_numbers else str(i) for i in ids]
