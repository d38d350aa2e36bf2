"""Synthetic tasks: rows made from a seed, whose right answers are known.

One file a task. A task makes rows; `module.SyntheticData` keeps training and validation apart and cuts batches.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from minitf.errors import ConfigError

IGNORED = -100  # a target that is not scored
NO_TOKEN = -1  # the position of padding

Rows = dict[str, np.ndarray]


class SyntheticTask:
    """The interface of every task.

    Attributes:
        gives: the kind of its batches, see `minitf.data.base.BaseData`.
        question: names of the arrays that make a row what it is; rows that agree in them are the same example.
        vocab_size: ids that the model reads (of an encoder-decoder: the decoder).
        src_vocab_size: ids of the source of an encoder-decoder.
        n_classes: number of answers of "classify" and "tag".
    """

    gives: ClassVar[str]
    question: ClassVar[tuple[str, ...]] = ("ids",)
    vocab_size: int
    src_vocab_size: int | None = None
    n_classes: int | None = None

    def check(self, seq_len: int) -> None:
        """Raise ConfigError unless rows of `seq_len` tokens are long enough."""

    def rows(self, rng: np.random.Generator, n: int, seq_len: int) -> Rows:
        """Draw `n` rows.

        Args:
            rng: the only source of chance.
            n: number of rows.
            seq_len: tokens of the longest row, T.

        Returns:
            int64 arrays (n, ...) as the task's batches hold them.
        """
        raise NotImplementedError


MOST = 4096  # different symbols or classes; a synthetic task with more shows nothing new


def check_number(name: str, value: int, least: int) -> int:
    """`value` itself. Raises ConfigError unless it is a whole number from `least` to MOST."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST:
        raise ConfigError(f"data.task.{name} ({value!r}) must be a whole number from {least} to {MOST}")
    return value


def lengths(rng: np.random.Generator, n: int, least: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Lengths (n,) from `least` to `most`, each as likely, and which of `most` places they reach, bool (n, most)."""
    drawn = rng.integers(least, most + 1, size=n)
    return drawn, np.arange(most) < drawn[:, None]


def places(real: np.ndarray) -> np.ndarray:
    """Positions of rows padded at the end: 0, 1, 2, ... where `real`, else -1."""
    return np.where(real, np.arange(real.shape[1]), NO_TOKEN)
