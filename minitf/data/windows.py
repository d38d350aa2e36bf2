"""Token ids to batches: which window of the text stands in which row is pure arithmetic on (seed, step)."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from minitf.errors import ConfigError
from minitf.positions import from_real

IGNORED = -100  # a target that is not scored
VIEW = 1  # keeps the draws of a view apart from those of the order of rows
# ids (rows, T), real (rows, T) and a generator -> what the model sees, and what is asked for
View = Callable[[Tensor, Tensor, np.random.Generator], tuple[Tensor, Tensor]]


class Steps(Protocol):
    """What gives the batch of any step."""

    def batch(self, step: int, micro: int = 0, n_micro: int = 1) -> dict[str, Any]:
        """Part `micro` of `n_micro` equal parts of the rows of a step, and "n_scored" of the whole step."""


class TrainWindows:
    """Windows of the training text without replacement, in an order that depends on the seed only.

    Epoch e cuts the text into windows from its own offset and visits them in its own permutation. Row i of step s is
    window number s * batch_size + i of that endless list.

    Args:
        tokens: unsigned integers (n,), n > seq_len.
        seq_len: tokens per window, T.
        batch_size: rows per optimizer step, B.
        seed: any integer >= 0.
        view: makes ids and targets of the ids; None: the target is the next token.
    """

    def __init__(self, tokens: np.ndarray, seq_len: int, batch_size: int, seed: int, view: View | None = None) -> None:
        self.tokens = tokens
        self.view = view
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
        part = slice(micro * rows, (micro + 1) * rows)
        if self.view is None:
            ids, targets = _gather(self.tokens, self._rows(step, part), self.seq_len)
            return {"ids": ids, "targets": targets, "n_scored": self.batch_size * self.seq_len}
        # of the whole step, because what is scored in its other parts must be known
        ids, _ = _gather(self.tokens, self._rows(step, slice(0, self.batch_size)), self.seq_len)
        rng = np.random.default_rng([self.seed, step, VIEW])
        ids, targets = self.view(ids, torch.ones_like(ids, dtype=torch.bool), rng)
        n_scored = int((targets != IGNORED).sum())
        return {"ids": ids[part], "targets": targets[part], "n_scored": n_scored}

    def _rows(self, step: int, part: slice) -> np.ndarray:
        """First token of each window of a part of a step."""
        numbers = np.arange(part.start, part.stop) + step * self.batch_size
        epochs, places = np.divmod(numbers, self.n_windows)
        starts = np.empty(len(numbers), dtype=np.int64)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            starts[here] = self._starts(int(epoch))[places[here]]
        return starts

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
        steps: where batches come from.
        n_steps: optimizer steps of the whole run.
        start_step: first step to give.
        n_micro: parts per step and process.
        rank, world_size: number of this process, and how many there are.
    """

    def __init__(
        self,
        steps: Steps,
        n_steps: int,
        start_step: int,
        n_micro: int,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.steps = steps
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
                yield self.steps.batch(step, part, self.n_micro * self.world_size)

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
        view: makes ids and targets of the ids of a window, the same ones each time; None: the target is the next token.
    """

    def __init__(
        self,
        tokens: np.ndarray,
        seq_len: int,
        rows: int,
        rank: int = 0,
        world_size: int = 1,
        view: View | None = None,
    ) -> None:
        self.view = view
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
        if self.view is None:
            return {"ids": ids, "targets": targets}
        # one generator per window: what is asked for does not depend on how many windows a batch has
        real = targets != IGNORED
        pairs = [
            self.view(ids[i : i + 1], real[i : i + 1], np.random.default_rng([VIEW, first + i]))
            for i in range(len(ids))
        ]
        ids, targets = (torch.cat(side) for side in zip(*pairs, strict=True))
        return {"ids": ids, "targets": targets, **({} if real.all() else {"pos": from_real(real)})}

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        return (self[index] for index in range(len(self)))

    def places(self, index: int) -> Tensor:
        """Which token of the text stands at each place of batch `index`: int64 (rows, T), -1 where it is filled up."""
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} of {len(self)}")
        first = (index * self.world_size + self.rank) * self.rows
        last = max(first + 1, min(self.n_windows, first + self.rows))
        places = torch.arange(first, last)[:, None] * self.seq_len + torch.arange(self.seq_len)
        return torch.where(places < len(self.tokens) - 1, places, -1)


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
