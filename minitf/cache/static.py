"""A cache of fixed size."""

from __future__ import annotations

import torch
from torch import Tensor

from minitf.cache import Entries, KVCache, check_crop, check_fit, check_read, new_buffers, storage_bytes
from minitf.cache.dynamic import Dynamic
from minitf.errors import ConfigError


class Static(KVCache):
    """Written in place into one tensor per kind of entry, made at the first update: nothing is copied, memory is known.

    It gives back views of the part that is filled. It holds no gradients.

    Args:
        max_len: places; more tokens than that are refused. null: as many as the caller reserves.

    Raises:
        ConfigError: max_len below 1.
    """

    def __init__(self, max_len: int | None = None) -> None:
        if max_len is not None and (not isinstance(max_len, int) or isinstance(max_len, bool) or max_len < 1):
            raise ConfigError(f"cache.max_len must be a whole number of at least 1, or null, got {max_len!r}")
        self.max_len = max_len
        self._n_places = max_len or 0
        self._buffers: Entries = ()
        self._pos: Tensor | None = None
        self.reset()

    def reset(self) -> None:
        self.n_seen = 0
        self.plain = True

    @property
    def n_bytes(self) -> int:
        return storage_bytes(self._buffers)

    def reserve(self, n: int) -> None:
        if self.max_len is None and n > self._n_places:
            self._grow(n)
        elif self.max_len is not None and n > self.max_len:
            raise ConfigError(
                f"{n} tokens do not fit a static cache of {self.max_len} places: make it larger "
                f"({self.key}.max_len={n}, or null for as many as are needed), write fewer, or take cache=dynamic"
            )

    def update(self, *entries: Tensor, pos: Tensor, plain: bool) -> tuple[Entries, Tensor, Tensor, bool]:
        n, start = pos.size(1), self.n_seen
        end = start + n
        if end > self._n_places:
            raise ConfigError(
                f"a static cache of {self._n_places} places holds {start} tokens, {n} more do not fit: give "
                "it a larger max_len, reserve what is needed, or take cache=dynamic"
            )
        if start == 0:
            self._make(entries)
        else:
            check_fit(self._buffers, entries)
        for buffer, new in zip(self._buffers, entries, strict=True):
            buffer.narrow(-2, start, n).copy_(new)
        self._place(pos, start, self.plain and plain)
        self.n_seen, self.plain = end, self.plain and plain
        return self._filled(), pos, self._pos.narrow(-1, 0, end), self.plain

    def read(self) -> tuple[Entries, Tensor]:
        check_read(self._pos if self.n_seen else None)
        return self._filled(), self._pos[:, : self.n_seen]

    def select(self, rows: Tensor) -> None:
        if self.n_seen == 0:
            return
        filled = tuple(e.index_select(0, rows) for e in self._filled())
        self._make(filled)
        for buffer, new in zip(self._buffers, filled, strict=True):
            buffer.narrow(-2, 0, self.n_seen).copy_(new)
        if self._pos.size(0) > 1:
            self._pos = self._pos.index_select(0, rows)

    def crop(self, n: int) -> None:
        check_crop(n, self.n_seen)
        self.n_seen = n
        self.plain = self.plain or n == 0

    def for_source(self) -> Dynamic:
        return Dynamic()

    def state_dict(self) -> dict:
        filled = self.n_seen > 0
        entries = [e.clone() for e in self._filled()] if filled else []
        return {
            "entries": entries,
            "pos": self._pos[:, : self.n_seen].clone() if filled else None,
            "plain": self.plain,
        }

    def load_state_dict(self, state: dict) -> None:
        self.reset()
        if state["pos"] is not None:
            self.reserve(state["pos"].size(1))
            self.update(*state["entries"], pos=state["pos"], plain=state["plain"])

    def _place(self, pos: Tensor, start: int, plain: bool) -> None:
        """Note the positions of new tokens."""
        if start == 0:
            # those of plain rows stand there from the beginning
            self._pos = torch.arange(self._n_places, device=pos.device)[None]
        if plain:
            return
        if self._pos.size(0) < pos.size(0):
            self._pos = self._pos.expand(pos.size(0), -1).clone()
        self._pos.narrow(-1, start, pos.size(1)).copy_(pos)

    def _filled(self) -> Entries:
        return tuple(b.narrow(-2, 0, self.n_seen) for b in self._buffers)

    def _grow(self, n: int) -> None:
        state = self.state_dict()
        self._n_places = n
        self.load_state_dict(state)

    def _make(self, entries: Entries) -> None:
        """Buffers for entries like these, unless the ones that are there will do."""
        shapes = [(*e.shape[:-2], self._n_places, e.size(-1)) for e in entries]
        if [(b.shape, b.dtype, b.device) for b in self._buffers] != [
            (shape, e.dtype, e.device) for shape, e in zip(shapes, entries, strict=True)
        ]:
            way = (
                f"make {self.key}.max_len smaller"
                if self.max_len is not None
                else "write fewer tokens (max_new_tokens)"
            )
            self._buffers = new_buffers(entries, self._n_places, way)
