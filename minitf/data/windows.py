"""Token ids to batches: which window of the text stands in which row is pure arithmetic on (seed, step)."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from minitf.errors import ConfigError

IGNORED = -100  # a target that is not scored


class TrainWindows:
    """Windows of the training text without replacement, in an order that depends on the seed only.

    Epoch e cuts the text into windows from its own offset and visits them in its own permutation. Row i of step s is
    window number s * batch_size + i of that endless list.

    Args:
        tokens: unsigned integers (n,), n > seq_len.
        seq_len: tokens per window, T.
        batch_size: rows per optimizer step, B.
        seed: any integer >= 0.
    """

    def __init__(self, tokens: np.ndarray, seq_len: int, batch_size: int, seed: int) -> None:
        self.tokens = tokens
        self.seq_len = seq_len
        self.batch_size = batch_size
        self.seed = seed
        # One window fewer than would fit: the offset then moves over at least T places, and reaches every token.
        self.n_windows = max(1, (len(tokens) - seq_len) // seq_len)
        self._n_offsets = len(tokens) - self.n_windows * seq_len
        self._starts_of: dict[int, np.ndarray] = {}

    def batch(self, step: int, micro: int = 0, n_micro: int = 1) -> dict[str, Tensor | int]:
        """Part `micro` of `n_micro` equal parts of the rows of step `step`.

        Returns {"ids": (B/n_micro, T) int64, "targets": the same one token later, "n_scored": int, scored tokens of the
        whole step}. Raises ConfigError if batch_size is no multiple of n_micro.
        """
        rows = rows_per_part(self.batch_size, n_micro)
        first = step * self.batch_size + micro * rows
        epochs, places = np.divmod(np.arange(first, first + rows), self.n_windows)
        starts = np.empty(rows, dtype=np.int64)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            starts[here] = self._starts(int(epoch))[places[here]]
        ids, targets = _gather(self.tokens, starts, self.seq_len)
        return {"ids": ids, "targets": targets, "n_scored": self.batch_size * self.seq_len}

    def _starts(self, epoch: int) -> np.ndarray:
        """First token of each window of an epoch, in the order of visits."""
        if epoch not in self._starts_of:
            rng = np.random.default_rng([self.seed, epoch])
            offset = rng.integers(self._n_offsets)
            while len(self._starts_of) > 1:  # a batch needs one epoch, or two where one ends
                self._starts_of.pop(next(iter(self._starts_of)))
            self._starts_of[epoch] = offset + rng.permutation(self.n_windows) * self.seq_len
        return self._starts_of[epoch]


class TrainStream:
    """The batches of a run in order, `n_micro` per step; it can start at a later step and then goes on exactly.

    Each step is cut into n_micro * world_size equal parts; micro-batch m of process r is part m * world_size + r.
    Its length counts the whole run, also when it starts later: Lightning adds the batches done before to those read.

    Args:
        windows: where batches come from.
        n_steps: optimizer steps of the whole run.
        start_step: first step to give.
        n_micro: parts per step and process.
        rank, world_size: number of this process, and how many there are.
    """

    def __init__(
        self,
        windows: TrainWindows,
        n_steps: int,
        start_step: int,
        n_micro: int,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.windows = windows
        self.n_steps = n_steps
        self.start_step = start_step
        self.n_micro = n_micro
        self.rank = rank
        self.world_size = world_size

    def __len__(self) -> int:
        return self.n_steps * self.n_micro

    def __iter__(self) -> Iterator[dict[str, Tensor | int]]:
        for step in range(self.start_step, self.n_steps):
            for micro in range(self.n_micro):
                part = micro * self.world_size + self.rank
                yield self.windows.batch(step, part, self.n_micro * self.world_size)

    def state_dict(self) -> dict:
        """Nothing: `start_step` says it all. Lightning asks for it to know that a run can go on from here."""
        return {}

    def load_state_dict(self, state: dict) -> None:
        """Takes the nothing of `state_dict`."""


class ValBatches:
    """The whole text in windows side by side: every token but the first is a target exactly once.

    The last window is filled up with id 0 and target -100, and the last batch may have fewer rows. Process r of W
    takes batches r, r + W, ...; where they do not come out even, the last ones get one row in which nothing is scored,
    so that all processes do the same number of batches: one that did fewer would leave the others waiting.

    Args:
        tokens: unsigned integers (n,), n > 1.
        seq_len: tokens per window, T.
        rows: windows per batch.
        rank, world_size: number of this process, and how many there are.
    """

    def __init__(self, tokens: np.ndarray, seq_len: int, rows: int, rank: int = 0, world_size: int = 1) -> None:
        self.tokens = tokens
        self.seq_len = seq_len
        self.rows = rows
        self.rank = rank
        self.world_size = world_size
        self.n_windows = -(-(len(tokens) - 1) // seq_len)

    def __len__(self) -> int:
        return -(-self.n_windows // (self.rows * self.world_size))

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        """Batch number `index` of this process: {"ids", "targets"}, both (rows, T) int64."""
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} of {len(self)}")
        first = (index * self.world_size + self.rank) * self.rows
        last = min(self.n_windows, first + self.rows)
        if first >= last:
            empty = torch.zeros(1, self.seq_len, dtype=torch.int64)
            return {"ids": empty, "targets": torch.full_like(empty, IGNORED)}
        starts = np.arange(first, last) * self.seq_len
        ids, targets = _gather(self.tokens, starts, self.seq_len)
        if last == self.n_windows:
            n_real = len(self.tokens) - 1 - int(starts[-1])
            ids[-1, n_real:] = 0
            targets[-1, n_real:] = IGNORED
        return {"ids": ids, "targets": targets}

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        return (self[index] for index in range(len(self)))


def rows_per_part(batch_size: int, n_micro: int, world_size: int = 1) -> int:
    """Rows of one of n_micro * world_size equal parts of a batch. Raises ConfigError if they cannot be equal."""
    parts = n_micro * world_size
    if parts < 1 or batch_size % parts:
        what = f"{n_micro} equal micro-batches" + (f" for each of {world_size} processes" if world_size > 1 else "")
        rule = "trainer.accumulate divide" if world_size == 1 else "trainer.accumulate times the processes divide"
        raise ConfigError(f"batch_size ({batch_size}) rows cannot be divided into {what}: let {rule} data.batch_size.")
    return batch_size // parts


def _gather(tokens: np.ndarray, starts: np.ndarray, seq_len: int) -> tuple[Tensor, Tensor]:
    """Windows (rows, T) at `starts` and the same one token later; what lies beyond the end repeats the last token."""
    places = starts[:, None] + np.arange(seq_len + 1)
    window = tokens.take(places, mode="clip").astype(np.int64)
    # Copies: the two must not share memory, and compiled models want them without gaps.
    return torch.from_numpy(window[:, :-1].copy()), torch.from_numpy(window[:, 1:].copy())
