"""Rows kept as arrays, cut into batches of tensors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from minitf.data.windows import IGNORED

Rows = dict[str, np.ndarray]


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
                yield tensors({name: array[first : first + self.rows] for name, array in self.arrays.items()})
            else:
                yield _unscored({name: array[:1] for name, array in self.arrays.items()})


def tensors(rows: Rows) -> dict[str, Tensor]:
    """The same rows as int64 tensors."""
    return {name: torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64)) for name, array in rows.items()}


def n_scored(rows: Rows) -> int:
    """How many answers are asked for in these rows."""
    return int((rows["targets"] != IGNORED).sum()) if "targets" in rows else len(rows["label"])


def _unscored(rows: Rows) -> dict[str, Tensor]:
    batch = tensors(rows)
    for name in ("targets", "label"):
        if name in batch:
            batch[name] = torch.full_like(batch[name], IGNORED)
    if "row" in batch:  # the number of a row of the split, which this one is not
        batch["row"] = torch.full_like(batch["row"], -1)
    return batch
