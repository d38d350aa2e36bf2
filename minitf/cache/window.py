"""A cache that forgets: a ring of fixed size, with sinks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from minitf.cache import Entries, KVCache, check_crop, check_fit, check_read, new_buffers, storage_bytes
from minitf.cache.dynamic import Dynamic
from minitf.errors import ConfigError
from minitf.positions import NO_TOKEN, SEGMENT, offset


class Window(KVCache):
    """Keeps the last `window` tokens and the first `n_sink` of a document; memory is made at the first update.

    It equals the same weights with the mask `own & SlidingWindow(window, n_sink)`, in pieces of any size, in padded and
    packed rows. A token's place in the ring follows its own place in its document, so each row has its own ring, and
    padding is never stored. It is written in place, without gradients in mind.

    With `renumber`, positions count inside the cache, for masks too: sinks first, then the window, in order of age. No
    distance is longer than the cache, but a key stands elsewhere for each token: what would evict must come token by
    token.

    Args:
        window: tokens that a query reads, itself included.
        n_sink: first tokens of a document that stay.
        renumber: give positions as counted inside the cache.
        exact: refuse a model whose mask reads further; false lets it read less than it was trained to.
        spare: places more, so that `crop` can take back one token more than that many.

    Raises:
        ConfigError: sizes that mean nothing.

    Source: Xiao et al. 2023 (StreamingLLM), section 3.2: sinks and positions inside the cache.
    """

    in_order = False

    def __init__(
        self, window: int, n_sink: int = 0, renumber: bool = False, exact: bool = True, spare: int = 0
    ) -> None:
        for name, value, least in (("window", window, 1), ("n_sink", n_sink, 0), ("spare", spare, 0)):
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ConfigError(f"cache.{name} must be a whole number of at least {least}, got {value!r}")
        self.window, self.n_sink, self.spare = window, n_sink, spare
        self.keeps = (window, n_sink)
        self.raw_keys, self.exact = renumber, exact
        self.takes_back = spare + 1  # the place of a new token is that of one which nobody may read any more
        self._n_ring = window + spare
        self._n_slots = n_sink + self._n_ring
        self._buffers: Entries = ()
        self._pos: Tensor | None = None  # (B or 1, slots): which token a slot holds
        self._column: Tensor | None = None  # the same: as which of those seen it came; None if that is its position
        self.reset()

    def reset(self) -> None:
        self.n_seen = 0
        self._highest = 0  # the most tokens seen since the last reset: crop() does not bring back what they evicted
        self._column = None
        self.plain = True

    @property
    def n_bytes(self) -> int:
        return storage_bytes(self._buffers)

    @property
    def chunk_limit(self) -> int | None:
        return max(1, self.n_sink + self.window - self.n_seen) if self.raw_keys else None

    def update(self, *entries: Tensor, pos: Tensor, plain: bool) -> tuple[Entries, Tensor, Tensor, bool]:
        start, n_new = self.n_seen, pos.size(1)
        end = start + n_new
        self._check_piece(n_new)
        self._prepare(entries, pos, plain)
        if start == 0:  # nothing else can be read, and the new ones may be more than the ring takes
            found, k_pos = entries, pos
            self._store(entries, pos)
        elif n_new == 1 or (self.plain and end <= self._n_slots):  # nothing is evicted that a new query may read
            self._store(entries, pos)
            found, k_pos = self._filled()
        else:
            held, k_pos = self._filled()
            found = tuple(torch.cat([old, new], -2) for old, new in zip(held, entries, strict=True))
            rows = max(k_pos.size(0), pos.size(0))
            k_pos = torch.cat([k_pos.expand(rows, -1), pos.expand(rows, -1)], -1)
            self._store(entries, pos)
        q_pos, k_pos = self._renumbered(pos, k_pos)
        reads_all = end <= self.n_sink + self.window or (n_new == 1 and self.spare == 0)
        return found, q_pos, k_pos, self.plain and reads_all

    def read(self) -> tuple[Entries, Tensor]:
        check_read(self._pos if self.n_seen else None)
        entries, k_pos = self._filled()
        last = k_pos.amax(-1, keepdim=True)
        return entries, self._renumbered(last, k_pos)[1]

    def select(self, rows: Tensor) -> None:
        if self.n_seen == 0:
            return
        self._buffers = tuple(b.index_select(0, rows) for b in self._buffers)
        if self._pos.size(0) > 1:
            self._pos = self._pos.index_select(0, rows)
            self._column = None if self._column is None else self._column.index_select(0, rows)

    def crop(self, n: int) -> None:
        check_crop(n, self.n_seen)
        if n == 0:
            self.reset()
            return
        column = self._pos if self._column is None else self._column
        self._check_evicted(n, column)
        self._pos.masked_fill_(column >= n, NO_TOKEN)
        self.n_seen = n

    def for_source(self) -> Dynamic:
        return Dynamic()

    def state_dict(self) -> dict:
        state = {"sizes": [self.window, self.n_sink, self.spare, self.raw_keys], "plain": self.plain}
        state |= {"n_seen": self.n_seen, "highest": self._highest, "entries": [], "pos": None, "column": None}
        if self.n_seen:
            state |= {"entries": [b.clone() for b in self._buffers], "pos": self._pos.clone()}
            state["column"] = None if self._column is None else self._column.clone()
        return state

    def load_state_dict(self, state: dict) -> None:
        sizes = [self.window, self.n_sink, self.spare, self.raw_keys]
        if state.get("sizes") != sizes:
            raise ConfigError(
                f"what was saved is of another cache: window, n_sink, spare and renumber are {sizes} here, "
                f"{state.get('sizes')} there: take the same cache"
            )
        self.n_seen, self._highest, self.plain = state["n_seen"], state["highest"], state["plain"]
        # clones, because this cache writes in place
        self._buffers = tuple(e.clone() for e in state["entries"])
        self._pos, self._column = (None if state[key] is None else state[key].clone() for key in ("pos", "column"))

    # --- checks ---

    def _check_piece(self, n_new: int) -> None:
        limit = self.chunk_limit
        if limit is not None and n_new > limit:
            raise ConfigError(
                f"{n_new} tokens at once would push others out of a cache that renumbers positions, which must be done "
                f"token by token: give {limit} at most now (chunk_limit), or take a larger {self.key}.window"
            )

    def _check_evicted(self, n: int, column: Tensor) -> None:
        """Raise ConfigError if a later token would have to read what the forgotten ones have evicted."""
        n_taken = self._highest - n
        room = self._n_slots if self.plain else self._n_ring  # padded rows need not begin with a sink
        if self._highest > room and n_taken > self.spare + 1:
            raise ConfigError(
                f"crop({n}): the {n_taken} tokens after that have taken the places of others, and this cache can take "
                f"back {self.spare + 1}: make it with spare={n_taken - 1} ({self.key}.spare) or more, or "
                "take cache=dynamic"
            )
        if not self.plain:
            # the places of an earlier document were given away without counting
            begins = (self._pos >= SEGMENT) & (offset(self._pos) == 0) & (column >= n)
            if begins.any():
                raise ConfigError(
                    f"crop({n}) goes back behind the beginning of a document, whose tokens have taken the places of "
                    "those before it, whatever spare is: take cache=dynamic"
                )

    # --- slots ---

    def _filled(self) -> tuple[Entries, Tensor]:
        """The slots in use, with some that hold nothing where rows are padded or tokens were taken back."""
        n = min(self.n_seen, self._n_slots) if self.plain else self._n_slots
        return tuple(b[..., :n, :] for b in self._buffers), self._pos[:, :n]

    def _renumbered(self, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Positions as they are given out, for the newest token of each row, or for any while nothing is evicted."""
        n_kept = self.n_sink + self.window
        if not self.raw_keys or (self.plain and self.n_seen <= n_kept) or q_pos.size(1) > 1:
            return q_pos, k_pos
        shift = (offset(q_pos) + 1 - n_kept).clamp_min(0)
        place = offset(k_pos)
        moved = torch.where(place - shift >= self.n_sink, k_pos - shift, NO_TOKEN)
        return q_pos - shift, torch.where(place < self.n_sink, k_pos, moved)

    def _prepare(self, entries: Entries, pos: Tensor, plain: bool) -> None:
        """Make room, and remember columns from the first token on that is not plain."""
        if self.n_seen == 0:
            self._make(entries, pos)
        else:
            check_fit(self._buffers, entries)
        rows = max(self._pos.size(0), pos.size(0))
        self.plain = self.plain and plain
        if not self.plain and self._column is None:
            self._column = self._pos.clone()
        if self._pos.size(0) < rows:
            self._pos = self._pos.expand(rows, -1).clone()
            self._column = self._column.expand(rows, -1).clone()

    def _make(self, entries: Entries, pos: Tensor) -> None:
        """Buffers for entries like these; those that are there are emptied, if they will do."""
        wanted = [((*e.shape[:-2], self._n_slots, e.size(-1)), e.dtype, e.device) for e in entries]
        if [(b.shape, b.dtype, b.device) for b in self._buffers] == wanted:
            for buffer in self._buffers:
                buffer.zero_()
        else:
            self._buffers = new_buffers(entries, self._n_slots, f"make {self.key}.window (or n_sink, spare) smaller")
        self._pos = torch.full((pos.size(0), self._n_slots), NO_TOKEN, device=pos.device)

    def _store(self, entries: Entries, pos: Tensor) -> None:
        start, end = self.n_seen, self.n_seen + pos.size(1)
        if self.plain:
            for first, slot, n in self._runs(start, end):
                new, old = slice(first - start, first - start + n), slice(slot, slot + n)
                for buffer, entry in zip(self._buffers, entries, strict=True):
                    buffer[..., old, :] = entry[..., new, :]
                self._pos[:, old] = pos[:, new]
        else:
            self._scatter(entries, pos, start)
        self.n_seen, self._highest = end, max(self._highest, end)

    def _runs(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Tokens of a plain row that go into neighbouring slots: the first one, its slot, how many.

        Those whose slot a later one of them takes are left out.
        """
        if start < self.n_sink:
            yield start, start, min(self.n_sink, end) - start
        first = max(start, self.n_sink, end - self._n_ring)
        while first < end:
            slot = self.n_sink + (first - self.n_sink) % self._n_ring
            n = min(end - first, self._n_slots - slot)
            yield first, slot, n
            first += n

    def _scatter(self, entries: Entries, pos: Tensor, start: int) -> None:
        """Store tokens of rows that each have their own places; padding goes nowhere."""
        place, n_new = offset(pos), pos.size(1)
        slot = torch.where(place < self.n_sink, place, self.n_sink + (place - self.n_sink) % self._n_ring)
        slot, real, pos = (t.expand(self._pos.size(0), -1) for t in (slot, pos >= 0, pos))
        new = torch.arange(n_new, device=pos.device).expand_as(pos)
        stored = [(self._pos[..., None], pos[..., None]), (self._column[..., None], start + new[..., None])]
        stored += zip(self._buffers, entries, strict=True)
        if n_new == 1:
            for old, entry in stored:
                index = _over(slot, entry)
                old.scatter_(-2, index, torch.where(_over(real, entry), entry, old.gather(-2, index)))
            return
        # which of the new tokens is the last to come into each slot; amax, because the order of a scatter is not fixed
        last = torch.full_like(self._pos, -1).scatter_reduce_(1, slot, new.masked_fill(~real, -1), "amax")
        for old, entry in stored:
            arrived = entry.gather(-2, _over(last.clamp_min(0), old))
            old.copy_(torch.where(_over(last >= 0, old), arrived, old))


def _over(slots: Tensor, entry: Tensor) -> Tensor:
    """(B or 1, n) as a view of the shape (B,*,n,d) of an entry."""
    return slots.reshape(slots.size(0), *[1] * (entry.dim() - 3), -1, 1).expand(entry.shape)
