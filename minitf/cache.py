"""KV caches: what attention keeps of the tokens it has seen.

A cache does not know what it stores: any tensors with the token axis at -2. The caller makes one per layer and passes
it down; no module keeps one. Positions travel with the entries, so nothing here counts lengths or padding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from minitf.errors import ConfigError

Entries = tuple[Tensor, ...]


class KVCache:
    """The interface of every cache kind.

    Attributes:
        raw_keys: True if the cache wants keys before rotation, because it renumbers positions.
        n_seen: tokens consumed so far, padding included.
        n_held: tokens that later queries can still read.
        n_bytes: memory of the stored tensors, in bytes.
        plain: True while nothing padded, packed or reordered was stored.
    """

    raw_keys: bool = False
    n_seen: int
    n_held: int
    n_bytes: int
    plain: bool

    def update(self, *entries: Tensor, pos: Tensor, plain: bool) -> tuple[Entries, Tensor, Tensor, bool]:
        """Add the entries of T new tokens and return all that any of their queries may read.

        Args:
            entries: tensors (B,*,T,d), for example keys and values.
            pos: (B or 1, T) positions of the new tokens.
            plain: True if `pos` simply goes on from what was stored, without padding.

        Returns:
            entries (B,*,S,d), positions of queries (B or 1, T) and keys (B or 1, S), and whether all is plain.

        Raises:
            ConfigError: the entries do not fit what is stored.
        """
        raise NotImplementedError

    def read(self) -> tuple[Entries, Tensor]:
        """Entries and key positions that are held, without adding any."""
        raise NotImplementedError

    def select(self, rows: Tensor) -> None:
        """Keep the given rows of the batch, in this order (int64, repeats allowed)."""
        raise NotImplementedError

    def crop(self, n: int) -> None:
        """Forget all but the first n tokens."""
        raise NotImplementedError

    def reset(self) -> None:
        """Forget everything; the cache is as new."""
        raise NotImplementedError

    def state_dict(self) -> dict:
        """Everything stored, as plain containers and tensors."""
        raise NotImplementedError

    def load_state_dict(self, state: dict) -> None:
        """Take over what `state_dict` gave."""
        raise NotImplementedError


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
    def n_held(self) -> int:
        return self.n_seen

    @property
    def n_bytes(self) -> int:
        return sum(e.untyped_storage().nbytes() for e in self._entries)

    def update(self, *entries: Tensor, pos: Tensor, plain: bool) -> tuple[Entries, Tensor, Tensor, bool]:
        if self._pos is None:
            self._entries, self._pos = entries, pos
        else:
            check_fit(self._entries, entries)
            self._entries = tuple(torch.cat([old, new], -2) for old, new in zip(self._entries, entries, strict=True))
            rows = max(self._pos.size(0), pos.size(0))
            self._pos = torch.cat([self._pos.expand(rows, -1), pos.expand(rows, -1)], -1)
        self.plain = self.plain and plain
        return self._entries, pos, self._pos, self.plain

    def read(self) -> tuple[Entries, Tensor]:
        if self._pos is None:
            raise ConfigError("this cache is empty: run the model once with it before reading from it")
        return self._entries, self._pos

    def select(self, rows: Tensor) -> None:
        if self._pos is None:
            return
        self._entries = tuple(e.index_select(0, rows) for e in self._entries)
        if self._pos.size(0) > 1:
            self._pos = self._pos.index_select(0, rows)

    def crop(self, n: int) -> None:
        if not 0 <= n <= self.n_seen:
            raise ConfigError(f"crop({n}): this cache holds {self.n_seen} tokens; n must lie between 0 and that")
        if n == 0:
            self.reset()
        else:
            # clone: a view would keep the memory of the forgotten tokens
            self._entries = tuple(e[..., :n, :].clone() for e in self._entries)
            self._pos = self._pos[:, :n].clone()

    def state_dict(self) -> dict:
        return {"entries": list(self._entries), "pos": self._pos, "plain": self.plain}

    def load_state_dict(self, state: dict) -> None:
        self._entries, self._pos, self.plain = tuple(state["entries"]), state["pos"], state["plain"]


def check_fit(old: Entries, new: Entries) -> None:
    """Raise ConfigError unless the new entries differ from the stored ones in the number of tokens alone."""
    kinds = [[(*e.shape[:-2], e.shape[-1], e.dtype) for e in entries] for entries in (old, new)]
    if kinds[0] == kinds[1]:
        return
    rows = [kind[0][0] for kind in kinds]
    what = f"{rows[0]} rows, got {rows[1]}" if rows[0] != rows[1] else f"entries {kinds[0]}, got {kinds[1]}"
    raise ConfigError(f"this cache holds {what}: make new caches for another batch or model, or call reset()")
