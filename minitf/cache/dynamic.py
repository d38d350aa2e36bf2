"""The simplest cache."""

from __future__ import annotations

import torch
from torch import Tensor

from minitf.cache import Entries, KVCache, check_crop, check_fit, check_read, on_their_own, storage_bytes


class Dynamic(KVCache):
    """Grows by concatenation: simple, exact, holds every token."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._entries: Entries = ()
        self._pos: Tensor | None = None
        self.plain = True

    @property
    def n_seen(self) -> int:
        return 0 if self._pos is None else self._pos.size(-1)

    @property
    def n_bytes(self) -> int:
        return storage_bytes(self._entries)

    def update(self, *entries: Tensor, pos: Tensor, plain: bool) -> tuple[Entries, Tensor, Tensor, bool]:
        if self._pos is None:
            self._entries, self._pos = on_their_own(entries), pos
        else:
            check_fit(self._entries, entries)
            self._entries = tuple(torch.cat([old, new], -2) for old, new in zip(self._entries, entries, strict=True))
            rows = max(self._pos.size(0), pos.size(0))
            self._pos = torch.cat([self._pos.expand(rows, -1), pos.expand(rows, -1)], -1)
        self.plain = self.plain and plain
        return self._entries, pos, self._pos, self.plain

    def read(self) -> tuple[Entries, Tensor]:
        check_read(self._pos)
        return self._entries, self._pos

    def select(self, rows: Tensor) -> None:
        if self._pos is None:
            return
        self._entries = tuple(e.index_select(0, rows) for e in self._entries)
        if self._pos.size(0) > 1:
            self._pos = self._pos.index_select(0, rows)

    def crop(self, n: int) -> None:
        check_crop(n, self.n_seen)
        if n == 0:
            self.reset()
        else:
            # clone: a view would keep the memory of the forgotten tokens
            self._entries = tuple(e[..., :n, :].clone() for e in self._entries)
            self._pos = self._pos[:, :n].clone()

    def for_source(self) -> Dynamic:
        return Dynamic()

    def state_dict(self) -> dict:
        return {"entries": list(self._entries), "pos": self._pos, "plain": self.plain}

    def load_state_dict(self, state: dict) -> None:
        self._entries, self._pos, self.plain = tuple(state["entries"]), state["pos"], state["plain"]
