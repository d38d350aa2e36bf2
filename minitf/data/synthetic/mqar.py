"""Associative recall with several questions."""

from __future__ import annotations

import numpy as np

from minitf.data.synthetic import IGNORED, NO_SOURCE, Rows, SyntheticTask, check_number
from minitf.errors import ConfigError

POWER = 0.01  # the gaps' exponent of the source


class MQAR(SyntheticTask):
    """Pairs of a key and a value, then the keys again, each to be answered with its value.

    Keys are ids 1 to V/2 - 1, values V/2 to V - 1. A row begins with n_pairs different keys, each followed by its
    value, all of them different; after them each key comes once more, at a distance with density gap^(power - 1), so
    most come early. All other places hold tokens drawn from the whole vocabulary. Only the places of the repeated keys
    are scored. Two layers solve it as induction does: a token learns which key stands before it, and the repeated key
    attends to the token after its first copy (gold); all answers are right then. No attention: a value is right with
    chance 2/V. Best offset: hardly better.

    Source: Arora et al. 2023 (Zoology), section 4 and appendix: multi-query associative recall.

    Args:
        vocab_size: V.
        n_pairs: pairs of a row.
    """

    gives = "answers"
    roles = ("value",)

    def __init__(self, vocab_size: int, n_pairs: int) -> None:
        self.vocab_size = check_number("vocab_size", vocab_size, 6)
        self.n_pairs = check_number("n_pairs", n_pairs, 1)
        if vocab_size % 2 or n_pairs > vocab_size // 2 - 1:
            raise ConfigError(
                f"data.task.vocab_size ({vocab_size}) must be even, and leave keys enough for data.task.n_pairs "
                f"({n_pairs}): half of it less one"
            )

    def check(self, seq_len: int) -> None:
        if seq_len < 4 * self.n_pairs:
            raise ConfigError(
                f"data.seq_len ({seq_len}) must be at least {4 * self.n_pairs}: the {self.n_pairs} pairs of "
                "data.task.n_pairs come twice"
            )

    def rows(self, rng: np.random.Generator, n: int, seq_len: int) -> Rows:
        half, context = self.vocab_size // 2, 2 * self.n_pairs
        keys = 1 + _draw_different(rng, n, np.ones(half - 1), self.n_pairs)
        values = half + _draw_different(rng, n, np.ones(half), self.n_pairs)
        room = (seq_len - context) // 2
        gaps = _draw_different(rng, n, np.arange(1, room + 1) ** (POWER - 1.0), self.n_pairs)
        text = rng.integers(self.vocab_size, size=(n, seq_len))
        text[:, 0:context:2], text[:, 1:context:2] = keys, values
        row, asks = np.arange(n)[:, None], context + 2 * gaps
        text[row, asks] = keys
        targets, gold = np.full((n, seq_len), IGNORED), np.full((n, seq_len, 1), NO_SOURCE)
        targets[row, asks] = values
        gold[row, asks, 0] = 2 * np.arange(self.n_pairs) + 1
        return {"ids": text, "targets": targets, "gold.value": gold}

    def symbols(self, ids: list[int]) -> list[str]:
        half = self.vocab_size // 2
        return [f"k{i}" if i < half else f"v{i - half}" for i in ids]


def _draw_different(rng: np.random.Generator, n: int, weights: np.ndarray, k: int) -> np.ndarray:
    """(n, k) different numbers below len(weights) in each row, drawn one after another with these weights."""
    # the k smallest of exponential waiting times are such a draw (Efraimidis and Spirakis 2006)
    waits = rng.exponential(size=(n, len(weights))) / weights
    return np.argsort(waits, axis=1)[:, :k]
