"""The rows so far: prompts, and what was written after them."""

from __future__ import annotations

import torch
from torch import Tensor

from minitf.errors import ConfigError
from minitf.generation.rules import History
from minitf.positions import NO_TOKEN, from_real


class Rows:
    """The rows so far, left-padded, and the part of them that the model's position table can hold: the window.

    A learned table ends somewhere. When a row outgrows it, its window moves on by half a table, so that the model reads
    the last part of the text again from place 0. The rule depends on the length of the row alone.

    Args:
        ids: (B,T) prompts.
        pos: (B or 1, T) their positions, -1 at padding on either side; None if nothing is padded.
        limit: places of the model's position table, None for no end.
        n_tokens: the model's vocabulary, None if it is not known.

    Attributes:
        n: number of columns, padding counted.
        lengths: real tokens of each row.

    Raises:
        ConfigError: no rows of ids, an id outside the vocabulary, an empty prompt, other positions than
            0, 1, 2, ..., or a prompt longer than the table.
    """

    def __init__(self, ids: Tensor, pos: Tensor | None, limit: int | None, n_tokens: int | None = None) -> None:
        _check_shapes(ids, pos)
        self.limit = limit
        self.lengths = [ids.size(1)] * ids.size(0)
        if pos is not None:
            real = _real(ids, pos)
            self.lengths = real.sum(-1).tolist()
            ids = right_aligned(ids, real)
        if min(self.lengths) < 1:
            raise ConfigError("a prompt is empty: give at least one token, for example the tokenizer's bos_id")
        if limit is not None and max(self.lengths) > limit:
            raise ConfigError(
                f"the prompt has {max(self.lengths)} tokens, the model's learned position table {limit} places: "
                "shorten the prompt, or train with a longer data.seq_len or model/position=rope, sinusoidal or none"
            )
        if n_tokens is not None:
            _check_ids(ids, n_tokens)
        self.n = ids.size(1)
        self._buffer = ids
        self._prompt_lengths = self.lengths
        self._n_pads = torch.tensor([[self.n - n] for n in self.lengths], device=ids.device)
        self._starts = [0] * ids.size(0)
        self._place()

    @property
    def device(self) -> torch.device:
        """Where the tokens are."""
        return self._buffer.device

    @property
    def width(self) -> int:
        """Columns of the present window."""
        return self.n - self._begin

    @property
    def starts(self) -> list[int]:
        """Which token of each row stands at place 0 of its window."""
        return self._starts

    def append(self, ids: Tensor) -> None:
        """One more token (B,) for each row."""
        if self.n == self._buffer.size(1):
            # twice the place, so that a token seldom copies the text
            room = self._buffer.new_empty(self._buffer.size(0), 2 * self.n + 64)
            room[:, : self.n] = self._buffer
            self._buffer = room
        self._buffer[:, self.n] = ids
        self.n += 1
        self.lengths = [n + 1 for n in self.lengths]

    def select(self, rows: Tensor) -> None:
        """Keep the given rows, in this order (int64, repeats allowed)."""
        chosen = rows.tolist()
        self._buffer = self._buffer.index_select(0, rows)
        self._n_pads = self._n_pads.index_select(0, rows)
        self.lengths = [self.lengths[row] for row in chosen]
        self._prompt_lengths = [self._prompt_lengths[row] for row in chosen]
        self._starts = [self._starts[row] for row in chosen]
        self._place()

    def move(self) -> bool:
        """Move the windows on if a row has outgrown the table; True if any did."""
        if self.limit is None or max(self.lengths) <= self.limit:
            return False
        starts = [window_start(n, self.limit) for n in self.lengths]
        if starts == self._starts:
            return False
        self._starts = starts
        self._place()
        return True

    def columns(self, begin: int, end: int) -> tuple[Tensor, Tensor | None]:
        """Tokens and positions (B,end-begin) of some columns of the window; no positions if nothing is padded."""
        begin, end = begin + self._begin, end + self._begin
        # one column: in memory like any other, whatever the size of the buffer, or a compiled model would be made anew
        ids = self._buffer[:, begin:end].clone(memory_format=torch.contiguous_format)
        if self._first is None:
            return ids, None
        return ids, (torch.arange(begin, end, device=ids.device) - self._first).clamp_min(NO_TOKEN)

    def history(self) -> History:
        """What rules read."""
        return History(self._buffer[:, : self.n], self.lengths, self._prompt_lengths, self._n_pads)

    def _place(self) -> None:
        """Where the windows begin: a new tensor only when they move, since making one makes a device wait."""
        held = [n - start for n, start in zip(self.lengths, self._starts, strict=True)]
        self._begin = self.n - max(held)
        self._first = None
        if min(held) != max(held):
            self._first = torch.tensor([[self.n - h] for h in held], device=self._buffer.device)


def window_start(n: int, limit: int | None) -> int:
    """First token of the window that is read of a text of n tokens: it moves on by half a table at a time."""
    if limit is None or n <= limit:
        return 0
    stride = max(1, limit // 2)
    return stride * -(-(n - limit) // stride)


def right_aligned(values: Tensor, real: Tensor, fill: int = 0) -> Tensor:
    """(B,T) -> (B,W): what is real in each row, moved to the right end; W is the most that a row has."""
    rows = [row[keep] for row, keep in zip(values, real, strict=True)]
    width = max(len(row) for row in rows)
    return torch.stack([torch.nn.functional.pad(row, (width - len(row), 0), value=fill) for row in rows])


def _check_shapes(ids: Tensor, pos: Tensor | None) -> None:
    """Raise ConfigError unless ids are rows, and positions of the same shape, or one row for all of them."""
    if ids.dim() != 2 or ids.size(0) < 1 or ids.dtype not in (torch.int64, torch.int32):
        raise ConfigError(
            f"prompts are rows of ids, int64 (B,T), got {ids.dtype} {tuple(ids.shape)}: give a single one as ids[None]"
        )
    if pos is not None and tuple(pos.shape) not in (tuple(ids.shape), (1, ids.size(1))):
        raise ConfigError(
            f"positions of ids {tuple(ids.shape)} must be of that shape or (1, {ids.size(1)}), got {tuple(pos.shape)}"
        )


def _check_ids(ids: Tensor, n_tokens: int) -> None:
    """Raise ConfigError for an id that the model does not know. It asks the device, once for a prompt."""
    wrong = ids[(ids < 0) | (ids >= n_tokens)]
    if len(wrong):
        raise ConfigError(
            f"id {int(wrong[0])} is not in the model's vocabulary of {n_tokens}, which are the ids from 0 to "
            f"{n_tokens - 1}: encode the prompt with the tokenizer that the model was trained with"
        )


def _real(ids: Tensor, pos: Tensor) -> Tensor:
    """Where tokens are real, (B,T), after checking that positions simply count them."""
    pos = pos.expand_as(ids)
    real = pos >= 0
    if not torch.equal(pos, from_real(real)):
        raise ConfigError(
            "positions of a prompt must count 0, 1, 2, ... over the real tokens of each row, -1 elsewhere"
        )
    return real
