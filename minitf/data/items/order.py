"""In which order training reads the rows."""

from __future__ import annotations

import numpy as np


class Order:
    """Epoch after epoch, each in an order of its own: row i of step s is number s * B + i of the epochs in a row.

    Args:
        lengths: of the rows, int (n,).
        batch_size: B.
        pool: batches of which the rows are sorted by length, so that a batch holds little padding; the batches of an
            epoch are shuffled then. 1: rows lie as they come.
        seed: an integer >= 0.
    """

    def __init__(self, lengths: np.ndarray, batch_size: int, pool: int, seed: int) -> None:
        self.lengths, self.batch_size, self.pool, self.seed = lengths, batch_size, pool, seed
        self._known: dict[int, np.ndarray] = {}

    def step(self, number: int) -> np.ndarray:
        """Numbers of the rows of a step, int (B,)."""
        epochs, places = np.divmod(np.arange(self.batch_size) + number * self.batch_size, len(self.lengths))
        return np.array([self._epoch(int(e))[p] for e, p in zip(epochs, places, strict=True)])

    def _epoch(self, epoch: int) -> np.ndarray:
        if epoch not in self._known:
            while len(self._known) > 1:  # a batch needs one epoch, or two where one ends
                self._known.pop(next(iter(self._known)))
            rng = np.random.default_rng([self.seed, epoch])
            order = rng.permutation(len(self.lengths))
            self._known[epoch] = order if self.pool == 1 else self._pooled(order, epoch, rng)
        return self._known[epoch]

    def _pooled(self, order: np.ndarray, epoch: int, rng: np.random.Generator) -> np.ndarray:
        """The rows of an epoch with those of each pool sorted by length, and the batches of the epoch shuffled."""
        first = -epoch * len(order) % self.batch_size  # rows that complete the last batch of the epoch before
        size = self.pool * self.batch_size
        pools = [order[i : i + size] for i in range(first, len(order), size)]
        rows = np.concatenate([order[:0], *(pool[np.argsort(self.lengths[pool], kind="stable")] for pool in pools)])
        n = len(rows) // self.batch_size
        batches = rows[: n * self.batch_size].reshape(n, self.batch_size)
        return np.concatenate([order[:first], rng.permutation(batches).ravel(), rows[n * self.batch_size :]])
