"""A state of fixed size instead of a token list."""

from __future__ import annotations

import torch
from torch import Tensor

from minitf.cache import Entries, KVCache, check_crop, check_read, storage_bytes
from minitf.cache.dynamic import Dynamic
from minitf.errors import ConfigError


class State(KVCache):
    """Holds what a layer makes of all tokens so far, in tensors (B, ...) whose size does not grow: a recurrent layer's.

    `update` puts the state after the new tokens in the place of the old one, `read` gives it. Its position is that of
    the last real token of each row, -1 before there is one. No single token can be read again: `n_held` is 1, the
    state, however many were seen, and `crop` can only leave all or nothing.
    """

    takes_back = 0

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._state: Entries = ()
        self._pos: Tensor | None = None
        self.n_seen = 0
        self.plain = True

    @property
    def n_held(self) -> int:
        return min(self.n_seen, 1)

    @property
    def n_bytes(self) -> int:
        return storage_bytes(self._state)

    def update(self, *state: Tensor, pos: Tensor, plain: bool) -> tuple[Entries, Tensor, Tensor, bool]:
        """Replace the state.

        Args:
            state: tensors (B, ...) after the new tokens.
            pos: (B or 1, T) positions of these tokens.
            plain: as for any cache.

        Returns:
            The state, `pos`, the positions (B or 1, 1) of the last tokens, whether nothing was ever padded.

        Raises:
            ConfigError: a state of other shapes or dtypes than the one before.
        """
        if self._pos is not None:
            _check_same(self._state, state)
        # clone: a view, such as the last of many states, would keep the memory of all
        self._state = tuple(s.clone() for s in state)
        last = pos.amax(-1, keepdim=True)
        self._pos = last if self._pos is None else torch.maximum(self._pos, last)
        self.n_seen += pos.size(-1)
        self.plain = self.plain and plain
        return self._state, pos, self._pos, self.plain

    def read(self) -> tuple[Entries, Tensor]:
        check_read(self._pos)
        return self._state, self._pos

    def select(self, rows: Tensor) -> None:
        if self._pos is None:
            return
        self._state = tuple(s.index_select(0, rows) for s in self._state)
        if self._pos.size(0) > 1:
            self._pos = self._pos.index_select(0, rows)

    def crop(self, n: int) -> None:
        check_crop(n, self.n_seen)
        if n == 0:
            self.reset()
        elif n < self.n_seen:
            raise ConfigError(
                f"crop({n}): a State cache of {self.n_seen} tokens has one state for all of them and cannot go back: "
                "crop(0) and read the text again, or save state_dict() where you may want to go back to"
            )

    def for_source(self) -> Dynamic:
        return Dynamic()

    def state_dict(self) -> dict:
        return {"state": list(self._state), "pos": self._pos, "n_seen": self.n_seen, "plain": self.plain}

    def load_state_dict(self, state: dict) -> None:
        self._state, self._pos = tuple(state["state"]), state["pos"]
        self.n_seen, self.plain = state["n_seen"], state["plain"]


def _check_same(old: Entries, new: Entries) -> None:
    kinds = [[(tuple(s.shape), s.dtype) for s in state] for state in (old, new)]
    if kinds[0] != kinds[1]:
        raise ConfigError(
            f"this cache holds a state {kinds[0]}, got {kinds[1]}: make new caches for another batch or model, or call "
            "reset()"
        )
