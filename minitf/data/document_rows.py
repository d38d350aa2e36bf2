"""Batches of rows that hold whole documents, or pieces of them: pure arithmetic on (seed, step), as in windows.py."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from minitf.data.packing import Layout, Placed
from minitf.data.windows import IGNORED, VIEW, View, rows_per_part


class TrainDocuments:
    """The rows of a layout without replacement, in an order that depends on the seed only.

    Epoch e visits them in its own permutation. Row i of step s is number s * batch_size + i of that endless list.

    Args:
        layout: of the training text.
        batch_size: rows per optimizer step, B.
        seed: any integer >= 0.
        view: makes ids and targets of the ids of each piece; None: the target is the next token.
    """

    def __init__(self, layout: Layout, batch_size: int, seed: int, view: View | None = None) -> None:
        self.layout, self.batch_size, self.seed, self.view = layout, batch_size, seed, view
        self._visits: dict[int, np.ndarray] = {}

    def batch(self, step: int, micro: int = 0, n_micro: int = 1) -> dict[str, Tensor | int]:
        """Part `micro` of `n_micro` equal parts of the rows of step `step`: ids, targets and pos (B/n_micro, T).

        "n_scored" counts the whole step. Raises ConfigError if batch_size is no multiple of n_micro.
        """
        n = rows_per_part(self.batch_size, n_micro)
        part = slice(micro * n, (micro + 1) * n)
        rows = self._rows(step)
        if self.view is None:
            placed = self.layout.place(rows[part])
            n_scored = int(self.layout.n_scored[rows].sum())
            return {**self.layout.batch(placed, *self.layout.next_tokens(placed)), "n_scored": n_scored}
        # of the whole step, because what is scored in its other parts must be known
        placed = self.layout.place(rows)
        ids, targets = self._hidden(placed, np.random.default_rng([self.seed, step, VIEW]))
        batch = {name: value[part] for name, value in self.layout.batch(placed, ids, targets).items()}
        return {**batch, "n_scored": int((targets != IGNORED).sum())}

    def _rows(self, step: int) -> np.ndarray:
        numbers = np.arange(self.batch_size) + step * self.batch_size
        epochs, places = np.divmod(numbers, self.layout.n_rows)
        return np.array([self._visit(int(e))[i] for e, i in zip(epochs, places, strict=True)])

    def _visit(self, epoch: int) -> np.ndarray:
        """The rows of an epoch in the order of visits."""
        if epoch not in self._visits:
            while len(self._visits) > 1:  # a batch needs one epoch, or two where one ends
                self._visits.pop(next(iter(self._visits)))
            self._visits[epoch] = np.random.default_rng([self.seed, epoch]).permutation(self.layout.n_rows)
        return self._visits[epoch]

    def _hidden(self, placed: Placed, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """What the view makes of the pieces, all at once: a row of its own for each, as long as the longest."""
        ids = np.zeros((len(placed.pieces), int(placed.offset.max()) + 1), dtype=np.int64)
        real = np.zeros(ids.shape, dtype=bool)
        at = placed.piece, placed.offset
        ids[at], real[at] = self.layout.tokens[placed.source], True
        seen, targets = self.view(torch.from_numpy(ids), torch.from_numpy(real), rng)
        return seen.numpy()[at], targets.numpy()[at]


class ValDocuments:
    """All rows of a layout: each token is there exactly once, and what is hidden depends on its piece alone.

    The last batch may have fewer rows. Process r of W takes batches r, r + W, ...; where they do not come out even, the
    last ones get a row in which nothing is scored, as in `ValBatches`.

    Args:
        layout: of the validation text.
        rows: rows per batch.
        rank, world_size: number of this process, and how many there are.
        view: makes ids and targets of the ids of a piece, the same ones each time; None: the target is the next token.
    """

    def __init__(self, layout: Layout, rows: int, rank: int = 0, world_size: int = 1, view: View | None = None) -> None:
        self.layout, self.rows, self.rank, self.world_size, self.view = layout, rows, rank, world_size, view

    def __len__(self) -> int:
        return -(-self.layout.n_rows // (self.rows * self.world_size))

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        """Batch number `index` of this process: {"ids", "targets", "pos"}, all (rows, T) int64."""
        placed, is_spare = self._place(index)
        ids, targets = self.layout.next_tokens(placed)
        if self.view is not None:
            hidden = [self._hidden(int(number)) for number in placed.pieces]
            ids, targets = (np.concatenate(side) for side in zip(*hidden, strict=True))
        if is_spare:
            targets = np.full_like(targets, IGNORED)
        return self.layout.batch(placed, ids, targets)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        return (self[index] for index in range(len(self)))

    def places(self, index: int) -> Tensor:
        """Which token of the text stands at each place of batch `index`: int64 (rows, T), -1 at padding."""
        placed, is_spare = self._place(index)
        return self.layout.spread(placed, np.full_like(placed.source, -1) if is_spare else placed.source, -1)

    def _place(self, index: int) -> tuple[Placed, bool]:
        """The rows of a batch, and whether they only fill up for a process that has none left."""
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} of {len(self)}")
        first = (index * self.world_size + self.rank) * self.rows
        rows = np.arange(first, min(self.layout.n_rows, first + self.rows))
        return self.layout.place(rows if len(rows) else np.arange(1)), not len(rows)

    def _hidden(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """What the view makes of one piece, with a generator of its own: packed or padded, the same tokens hide."""
        start, length = self.layout.starts[number], self.layout.lengths[number]
        ids = torch.from_numpy(self.layout.tokens[start : start + length].astype(np.int64))[None]
        seen, targets = self.view(ids, torch.ones_like(ids, dtype=torch.bool), np.random.default_rng([VIEW, number]))
        return seen[0].numpy(), targets[0].numpy()
