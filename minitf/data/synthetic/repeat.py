"""Repetition: what induction heads are for."""

from __future__ import annotations

import numpy as np

from minitf.data.synthetic import IGNORED, Rows, SyntheticTask, check_number
from minitf.errors import ConfigError


class Repeat(SyntheticTask):
    """A beginning token (id 0), then a segment of different symbols again and again; say what comes next.

    The length of the segment is drawn for each row, so that no place knows where to look. From the second round on the
    next symbol is scored. Two ways lead there: attend to the token after the last one like this (an induction head,
    which needs a previous-token head in the layer before it), or find out the period.
    A solved model answers all. No attention: the next symbol is any of the others, 1/(n_symbols - 1). Order-blind: one
    of those that came least often so far, since they end this round; after a whole round one of the others. Best
    offset: rows whose period fits that offset are right, from there on.

    Source: Elhage et al. 2021; Olsson et al. 2022 (repeated random tokens).

    Args:
        n_symbols: how many symbols there are, the beginning not counted.
        least, most: shortest and longest segment.
    """

    gives = "answers"
    roles = ("repeat",)

    def __init__(self, n_symbols: int, least: int, most: int) -> None:
        self.n_symbols = check_number("n_symbols", n_symbols, 3)
        self.least, self.most = check_number("least", least, 2), check_number("most", most, 2)
        if not least <= most <= n_symbols:
            raise ConfigError(
                f"data.task: least ({least}) <= most ({most}) <= n_symbols ({n_symbols}) must hold: the symbols of a "
                "segment differ"
            )
        self.vocab_size = n_symbols + 1

    def check(self, seq_len: int) -> None:
        if seq_len < self.most + 2:
            raise ConfigError(
                f"data.seq_len ({seq_len}) must be at least data.task.most + 2 ({self.most + 2}): else the longest "
                "segment does not come twice"
            )

    def rows(self, rng: np.random.Generator, n: int, seq_len: int) -> Rows:
        period = rng.integers(self.least, self.most + 1, size=(n, 1))
        segment = 1 + rng.permuted(np.tile(np.arange(self.n_symbols), (n, 1)), axis=1)
        place = np.arange(seq_len + 1)[None] - 1  # of the text, which has one token more than is read
        text = np.where(place < 0, 0, np.take_along_axis(segment, place % period, 1))
        scored = place[:, 1:] >= period
        # the answer stands one period before the place that it is wanted for
        source = np.where(scored, np.arange(seq_len) + 1 - period, -1)
        return {
            "ids": text[:, :-1],
            "targets": np.where(scored, text[:, 1:], IGNORED),
            "gold.repeat": source[:, :, None],
        }

    def baselines(self, seq_len: int) -> dict[str, float]:
        periods = np.arange(self.least, self.most + 1)
        n_scored = seq_len - periods  # places of each period that are scored
        at_offset = [self._right_at(offset, periods, seq_len) for offset in periods - 1]
        return {
            "no attention": 1 / (self.n_symbols - 1),
            "order-blind": float(sum(_unordered(p, seq_len) for p in periods) / n_scored.sum()),
            "best offset": float(max(at_offset) / n_scored.sum()),
        }

    def _right_at(self, offset: int, periods: np.ndarray, seq_len: int) -> float:
        """Answers that stand `offset` places before, over one row of each period."""
        return sum(seq_len - (offset + 1) for p in periods if (offset + 1) % p == 0)

    def symbols(self, ids: list[int]) -> list[str]:
        return ["[bos]" if i == 0 else str(i) for i in ids]


def _unordered(period: int, seq_len: int) -> float:
    """Answers of one row that are right if only the number of each symbol so far is known."""
    done = np.arange(period - 1, seq_len - 1) % period + 1  # symbols of this round, at each place that is scored
    left = np.where(done < period, period - done, period - 1)
    return float((1 / left).sum())
