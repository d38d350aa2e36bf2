"""Reversal for encoder-decoders."""

from __future__ import annotations

import numpy as np

from minitf.data.synthetic import IGNORED, Rows, SyntheticTask, check_number, lengths, places
from minitf.errors import ConfigError


class Reverse(SyntheticTask):
    """Read 2 to T-1 symbols and write them backwards, then the end.

    Ids 0 to n_symbols-1 are symbols, n_symbols is the start of the target and its end. Sources have different lengths
    and are padded at the end. Cross-attention of step t solves it by reading the source at place n-1-t. Without any
    source the end can be guessed from the length alone, a symbol with chance 1/n_symbols.

    Args:
        n_symbols: how many symbols there are.
    """

    gives = "seq2seq"
    question = ("src", "src_pos")

    def __init__(self, n_symbols: int) -> None:
        self.n_symbols = check_number("n_symbols", n_symbols, 2)
        self.vocab_size = n_symbols + 1
        self.src_vocab_size = self.vocab_size  # one table can serve both sides

    def check(self, seq_len: int) -> None:
        if seq_len < 4:
            raise ConfigError(f"data.seq_len ({seq_len}) must be at least 4 for reversing: three symbols and the end")

    def rows(self, rng: np.random.Generator, n: int, seq_len: int) -> Rows:
        drawn, real = lengths(rng, n, 2, seq_len - 1)
        src = np.where(real, rng.integers(self.n_symbols, size=(n, seq_len - 1)), 0)
        answer = self.answer(src, drawn, real)
        end = np.full((n, 1), self.n_symbols)
        # the target is the answer and the end; what is read is the start and the answer
        written = np.arange(seq_len) <= drawn[:, None]
        ids = np.where(written, np.concatenate([end, answer], 1), 0)
        targets = np.concatenate([answer, np.zeros_like(end)], 1)
        targets[np.arange(n), drawn] = self.n_symbols
        return {
            "src": src,
            "src_pos": places(real),
            "ids": ids,
            "pos": places(written),
            "targets": np.where(written, targets, IGNORED),
        }

    def answer(self, src: np.ndarray, drawn: np.ndarray, real: np.ndarray) -> np.ndarray:
        """What is to be written (n, T-1), in the first `drawn` places of each row."""
        place = np.where(real, drawn[:, None] - 1 - np.arange(src.shape[1]), 0)
        return np.take_along_axis(src, place, 1)
