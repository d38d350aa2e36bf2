"""Batches of a synthetic task: endless, each a function of seed and step, and never a row of the validation split."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minitf.data.base import BaseData
from minitf.data.synthetic import IGNORED, Rows, SyntheticTask
from minitf.data.windows import rows_per_part
from minitf.errors import ConfigError, DataError
from minitf.memory import total_memory

VAL_SHARE = 8  # one row in so many belongs to validation, by a hash of what it asks
PATIENCE = 64  # draws that bring no new row before a task counts as exhausted


class SyntheticData(BaseData):
    """Rows of one task. A row belongs to training or to validation by a hash of its content, so no row is in both.

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

    def prepare(self, progress: Callable[[str], object] = print) -> SyntheticData:
        """Make the validation split. Returns self. Raises DataError where the task has too few different rows."""
        n_scored = _n_scored(self._val)
        content = hashlib.sha256(b"".join(name.encode() + rows.tobytes() for name, rows in sorted(self._val.items())))
        settings = {name: value for name, value in vars(self.task).items() if name not in self.facts}
        self.record = {
            "source": f"synthetic: {self.name}",
            "sha256": content.hexdigest(),
            "task": settings,
            **{name: value for name, value in self.facts.items() if value is not None},
            "val_rows": self.n_val,
            "val_scored": n_scored,
        }
        progress(f"{self.name} {json.dumps(settings)}: {self.n_val:,} validation rows, {n_scored:,} answers to give")
        return self

    def steps(self) -> SyntheticData:
        return self

    def batch(self, step: int, micro: int = 0, n_micro: int = 1) -> dict[str, Any]:
        """Part `micro` of `n_micro` equal parts of the rows of step `step`; as for `train_batch`."""
        n = rows_per_part(self.batch_size, n_micro)
        rows = self._draw(np.random.default_rng([self.seed, step]), self.batch_size, validation=False)
        part = {name: array[micro * n : (micro + 1) * n] for name, array in rows.items()}
        return {**_tensors(part), "n_scored": _n_scored(rows)}

    def val_batches(self) -> ValRows:
        rows = rows_per_part(self.batch_size, self.n_micro, self.world_size)
        return ValRows(self._val, rows, self.rank, self.world_size)

    @cached_property
    def _val(self) -> Rows:
        return self._draw(np.random.default_rng(0), self.n_val, validation=True)

    def _draw(self, rng: np.random.Generator, n: int, validation: bool) -> Rows:
        """`n` rows of one split; those of validation all differ."""
        found: list[Rows] = []
        seen: set[bytes] = set()
        missing, idle = n, 0
        while missing:
            rows = self.task.rows(rng, max(16, missing * (VAL_SHARE if validation else 1)), self.seq_len)
            keep = []
            for i, key in enumerate(self._keys(rows)):
                if (key[0] % VAL_SHARE == 0) == validation and key not in seen and len(keep) < missing:
                    keep.append(i)
                    if validation:
                        seen.add(key)
            found.append({name: array[keep] for name, array in rows.items()})
            missing -= len(keep)
            idle = 0 if keep else idle + 1
            if idle == PATIENCE:
                raise DataError(
                    f"{self.name} has too few different rows: {n - missing} of {n} were found. "
                    "Ask for fewer, data.n_val, or for longer ones, data.seq_len"
                )
        return {name: np.concatenate([rows[name] for rows in found]) for name in found[0]}

    def _keys(self, rows: Rows) -> Iterator[bytes]:
        """A hash of what each row asks."""
        asked = np.concatenate([rows[name] for name in self.task.question], 1)
        return (hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in asked)


class ValRows:
    """The validation rows in batches; process r of W takes batches r, r + W, ...

    Where they do not come out even, the last ones get one row in which nothing is scored, as in `ValBatches`.

    Args:
        arrays: the rows of the split.
        rows: rows per batch.
        rank, world_size: number of this process, and how many there are.
    """

    def __init__(self, arrays: Rows, rows: int, rank: int = 0, world_size: int = 1) -> None:
        self.arrays, self.rows, self.rank, self.world_size = arrays, rows, rank, world_size
        self.n_rows = len(next(iter(arrays.values())))

    def __len__(self) -> int:
        return -(-self.n_rows // (self.rows * self.world_size))

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        for index in range(len(self)):
            first = (index * self.world_size + self.rank) * self.rows
            if first < self.n_rows:
                yield _tensors({name: array[first : first + self.rows] for name, array in self.arrays.items()})
            else:
                yield _unscored({name: array[:1] for name, array in self.arrays.items()})


def _tensors(rows: Rows) -> dict[str, Tensor]:
    return {name: torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64)) for name, array in rows.items()}


def _unscored(rows: Rows) -> dict[str, Tensor]:
    batch = _tensors(rows)
    for name in ("targets", "label"):
        if name in batch:
            batch[name] = torch.full_like(batch[name], IGNORED)
    return batch


def _n_scored(rows: Rows) -> int:
    return int((rows["targets"] != IGNORED).sum()) if "targets" in rows else len(rows["label"])
