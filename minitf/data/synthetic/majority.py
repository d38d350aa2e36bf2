"""Which symbol is the most frequent one."""

from __future__ import annotations

import numpy as np

from minitf.data.synthetic import NO_SOURCE, Rows, SyntheticTask, check_number, lengths, places
from minitf.errors import ConfigError


class Majority(SyntheticTask):
    """Name the symbol that occurs most often in a row of T/2 to T symbols; no row is a tie.

    Uniform attention solves it: the mean of one-hot values is the row's distribution, and order does not matter.
    Guessing is right with chance 1/n_symbols.

    Args:
        n_symbols: how many symbols, and classes, there are.
    """

    gives = "classify"
    roles = ("winner",)
    question = ("ids", "pos")

    def __init__(self, n_symbols: int) -> None:
        self.n_symbols = check_number("n_symbols", n_symbols, 2)
        self.vocab_size = self.n_classes = n_symbols

    def check(self, seq_len: int) -> None:
        if seq_len < 3:
            raise ConfigError(f"data.seq_len ({seq_len}) must be at least 3 for a majority")

    def rows(self, rng: np.random.Generator, n: int, seq_len: int) -> Rows:
        _, real = lengths(rng, n, max(1, seq_len // 2), seq_len)
        ids = np.where(real, rng.integers(self.n_symbols, size=(n, seq_len)), 0)
        counts = np.zeros((n, self.n_symbols), dtype=np.int64)
        np.add.at(counts, (np.nonzero(real)[0], ids[real]), 1)
        top = counts.max(1, keepdims=True)
        label = counts.argmax(1)
        # a tie is broken by turning one symbol that is not among the winners' into a winner's
        for row in np.flatnonzero((counts == top).sum(1) > 1):
            others = np.flatnonzero(real[row] & (ids[row] != label[row]))
            ids[row, rng.choice(others)] = label[row]
        winners = np.where(real & (ids == label[:, None]), np.arange(seq_len), NO_SOURCE)
        return {"ids": ids, "pos": places(real), "label": label, "gold.winner": winners[:, None, :]}
