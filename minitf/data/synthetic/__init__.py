"""Synthetic tasks: rows made from a seed, whose right answers are known.

One file a task. A task makes rows; `module.SyntheticData` keeps training and validation apart and cuts batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from minitf.errors import ConfigError

IGNORED = -100  # a target that is not scored
NO_TOKEN = -1  # the position of padding
NO_SOURCE = -1  # where a role has no (further) source
GOLD = "gold."  # what the names of gold arrays begin with
COUNTED = 4000  # rows that baselines are counted on

Rows = dict[str, np.ndarray]


class SyntheticTask:
    """The interface of every task.

    Attributes:
        gives: the kind of its batches, see `minitf.data.base.BaseData`.
        question: names of the arrays that make a row what it is; rows that agree in them are the same example.
        roles: names of the arrays that say what an answer must be read from. "gold.<role>", int64 (n, T, K): for each
            place of `targets` (for one label: T is 1) up to K columns that answer it, NO_SOURCE where there is none;
            columns of "src" for an encoder-decoder, of "ids" otherwise.
        solved: share of the answers that are right in a model that has solved the task.
        val_share: share of all rows that belongs to validation; training draws from the others.
        vocab_size: ids that the model reads (of an encoder-decoder: the decoder).
        src_vocab_size: ids of the source of an encoder-decoder.
        n_classes: number of outputs of "classify" and "tag".
    """

    gives: str
    roles: ClassVar[tuple[str, ...]] = ()
    solved: float = 1.0
    val_share: float = 1 / 8
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
            int64 arrays (n, ...) as the task's batches hold them, those of `roles` among them.
        """
        raise NotImplementedError

    def baselines(self, seq_len: int) -> dict[str, float]:
        """Share of right answers without what the task is about, by name; the docstring of the task says how.

        "no attention": the best guess from the token at hand alone. "order-blind": the best guess from which tokens
        can be seen, not where. "best offset": the best guess from one token at a fixed distance. Where a task does not
        say otherwise the first and the last are counted, and nothing is said about order.
        """
        from minitf.data.synthetic.guessing import counted

        rows = self.rows(np.random.default_rng(0), COUNTED, seq_len)
        sees_later = self.gives != "answers"
        n_known = self.vocab_size if self.src_vocab_size is None else max(self.vocab_size, self.src_vocab_size)
        return counted(rows, n_known, self.n_classes or max(n_known, seq_len), sees_later)

    def symbols(self, ids: Sequence[int]) -> list[str]:
        """What people read for ids of `ids`; numbers unless the task has words."""
        return [str(i) for i in ids]

    def src_symbols(self, ids: Sequence[int]) -> list[str]:
        """The same for ids of `src`."""
        return self.symbols(ids)

    def answer_symbols(self, ids: Sequence[int]) -> list[str]:
        """The same for targets and labels."""
        return self.symbols(ids) if self.n_classes is None else [str(i) for i in ids]


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
