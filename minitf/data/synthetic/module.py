"""Batches of a synthetic task: endless, each a function of seed and step, and never a row of the validation split."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from minitf.data.arrays import ValRows, n_scored, tensors
from minitf.data.base import BaseData
from minitf.data.synthetic import Rows, SyntheticTask
from minitf.data.windows import rows_per_part
from minitf.errors import ConfigError, DataError
from minitf.memory import total_memory

PATIENCE = 64  # times as many rows as there seem to be, none of them new: then a task counts as exhausted
LEAST_DRAW, MOST_DRAW = 16, 2**14  # rows drawn at once


class SyntheticData(BaseData):
    """Rows of one task. A row belongs to training or to validation by a hash of its content, so no row is in both.

    The share of the rows that belong to validation is the task's `val_share`.

    Args:
        task: makes the rows.
        seq_len: tokens of the longest row, T.
        batch_size: rows per optimizer step, B.
        n_val: rows of the validation split.
        seed: an integer >= 0; which rows are drawn for training. The validation split is the same for every seed.

    Raises ConfigError for sizes below 1, or too small for the task.
    """

    def __init__(self, task: SyntheticTask, seq_len: int, batch_size: int, n_val: int, seed: int) -> None:
        super().__init__(seq_len, batch_size, seed)
        if not isinstance(n_val, int) or n_val < 1:
            raise ConfigError(f"data.n_val ({n_val!r}) must be a whole number of at least 1")
        n_bytes = 8 * 5 * n_val * seq_len  # five arrays of int64, and about as much while they are made
        if 2 * n_bytes > total_memory():
            raise ConfigError(
                f"data.n_val ({n_val:,}) rows of {seq_len} tokens do not fit into the memory: choose fewer"
            )
        task.check(seq_len)
        self.task = task
        self.n_val = n_val
        self.name = type(task).__name__

    @property
    def gives(self) -> str:
        return self.task.gives

    @property
    def facts(self) -> dict[str, int | None]:
        task = self.task
        return {"vocab_size": task.vocab_size, "src_vocab_size": task.src_vocab_size, "n_classes": task.n_classes}

    @property
    def source(self) -> SyntheticTask:
        return self.task

    @property
    def roles(self) -> tuple[str, ...]:
        return self.task.roles

    @property
    def solved(self) -> float:
        return self.task.solved

    def symbols(self, ids: Sequence[int]) -> list[str]:
        return self.task.symbols(ids)

    def src_symbols(self, ids: Sequence[int]) -> list[str]:
        return self.task.src_symbols(ids)

    def answer_symbols(self, ids: Sequence[int]) -> list[str]:
        return self.task.answer_symbols(ids)

    def baselines(self) -> dict[str, float]:
        return self.task.baselines(self.seq_len)

    def prepare(self, progress: Callable[[str], object] = print) -> SyntheticData:
        """Make the validation split. Returns self. Raises DataError where the task has too few different rows."""
        n_answers = n_scored(self._val)
        content = hashlib.sha256(b"".join(name.encode() + rows.tobytes() for name, rows in sorted(self._val.items())))
        own = vars(self.task).items()
        hidden = {*self.facts, "val_share"}  # follow from the others
        settings = {name: value for name, value in own if not (name in hidden or name.startswith("_"))}
        self.record = {
            "source": f"synthetic: {self.name}",
            "licence": "none is needed: the rows are made from a seed",
            "split": f"by row: hash of what it asks, {self.task.val_share:.3g} of them for validation",
            "sha256": content.hexdigest(),
            "task": settings,
            **{name: value for name, value in self.facts.items() if value is not None},
            "val_rows": self.n_val,
            "val_scored": n_answers,
        }
        progress(f"{self.name} {json.dumps(settings)}: {self.n_val:,} validation rows, {n_answers:,} answers to give")
        return self

    def steps(self) -> SyntheticData:
        return self

    def batch(self, step: int, micro: int = 0, n_micro: int = 1) -> dict[str, Any]:
        """Part `micro` of `n_micro` equal parts of the rows of step `step`; as for `train_batch`."""
        n = rows_per_part(self.batch_size, n_micro)
        rows = self._draw(np.random.default_rng([self.seed, step]), self.batch_size, validation=False)
        part = {name: array[micro * n : (micro + 1) * n] for name, array in rows.items()}
        return {**tensors(part), "n_scored": n_scored(rows)}

    def val_batches(self) -> ValRows:
        rows = rows_per_part(self.batch_size, self.n_micro, self.world_size)
        return ValRows(self._val, rows, self.rank, self.world_size)

    @cached_property
    def _val(self) -> Rows:
        return self._draw(np.random.default_rng(0), self.n_val, validation=True)

    def _draw(self, rng: np.random.Generator, n: int, validation: bool) -> Rows:
        """`n` rows of one split; those of validation all differ.

        However many of all rows are asked for, those that there are are found: of D rows that are as likely, one stays
        unseen with a chance of exp(-PATIENCE).
        """
        found: list[Rows] = []
        seen: set[bytes] = set()
        missing, idle, n_idle = n, 0, 0  # draws in a row that brought nothing, and rows in them
        while missing:
            wanted = max(LEAST_DRAW, math.ceil(missing / self.task.val_share) if validation else missing)
            size = wanted if not idle else min(max(wanted, MOST_DRAW), wanted << idle)
            rows = self.task.rows(rng, size, self.seq_len)
            keep = []
            for i, key in enumerate(self._keys(rows)):
                if (_chance(key) < self.task.val_share) == validation and key not in seen and len(keep) < missing:
                    keep.append(i)
                    if validation:
                        seen.add(key)
            found.append({name: array[keep] for name, array in rows.items()})
            missing -= len(keep)
            idle, n_idle = (0, 0) if keep else (idle + 1, n_idle + size)
            if n_idle >= PATIENCE * max(LEAST_DRAW, len(seen) / self.task.val_share):
                raise DataError(
                    f"{self.name} has too few different rows: {n - missing} of {n} were found. "
                    "Ask for fewer, data.n_val, or for longer ones, data.seq_len"
                )
        return {name: np.concatenate([rows[name] for rows in found]) for name in found[0]}

    def _keys(self, rows: Rows) -> Iterator[bytes]:
        """A hash of what each row asks."""
        asked = np.concatenate([rows[name] for name in self.task.question], 1)
        return (hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in asked)


def _chance(key: bytes) -> float:
    """A number from 0 to 1 made of a hash."""
    return int.from_bytes(bytes([key[0] % 8]) + key[1:4], "big") / 2**27
