"""How often each token occurs."""

from __future__ import annotations

import numpy as np

from minitf.data.synthetic import IGNORED, NO_SOURCE, Rows, SyntheticTask, check_number, lengths, places
from minitf.errors import ConfigError


class Histogram(SyntheticTask):
    """Tag every token with how often its symbol occurs in the row, from 1 to `most`, where more counts as `most`.

    Attention from each token to its equals solves it, order does not matter. The best answer without reading other
    tokens is the most frequent tag. Source of the task: Weiss et al. 2021 (RASP), section 3.

    Args:
        n_symbols: how many symbols there are.
        most: largest tag.
    """

    gives = "tag"
    roles = ("equal",)
    question = ("ids", "pos")

    def __init__(self, n_symbols: int, most: int) -> None:
        self.n_symbols = check_number("n_symbols", n_symbols, 2)
        self.most = check_number("most", most, 2)
        self.vocab_size, self.n_classes = n_symbols, most

    def check(self, seq_len: int) -> None:
        if seq_len < self.most:
            raise ConfigError(f"data.seq_len ({seq_len}) is shorter than the largest tag, data.task.most={self.most}")

    def rows(self, rng: np.random.Generator, n: int, seq_len: int) -> Rows:
        _, real = lengths(rng, n, max(1, seq_len // 2), seq_len)
        ids = np.where(real, rng.integers(self.n_symbols, size=(n, seq_len)), 0)
        equal = (ids[:, :, None] == ids[:, None, :]) & real[:, None, :]
        return {
            "ids": ids,
            "pos": places(real),
            "targets": np.where(real, equal.sum(2).clip(max=self.most) - 1, IGNORED),
            "gold.equal": np.where(equal & real[:, :, None], np.arange(seq_len), NO_SOURCE),
        }

    def answer_symbols(self, ids: list[int]) -> list[str]:
        return [f"{i + 1}+" if i + 1 == self.most else str(i + 1) for i in ids]
