"""Caches as their definitions say, however slowly: what the quick ones are compared with."""

from __future__ import annotations

import torch
from torch import Tensor

from minitf.cache import Entries
from minitf.cache.dynamic import Dynamic
from minitf.positions import NO_TOKEN, offset


class Renumbered(Dynamic):
    """For rows without padding, a token at a time: it reads what is kept as if there had never been more.

    Args:
        window, n_sink: it reads the last `window` tokens, itself included, and the first `n_sink`.

    Source: Xiao et al. 2023 (StreamingLLM), section 3.2.
    """

    raw_keys = True
    exact = False
    chunk_limit = 1

    def __init__(self, window: int, n_sink: int) -> None:
        self.keeps = (window, n_sink)
        super().__init__()

    def update(self, *entries: Tensor, pos: Tensor, plain: bool) -> tuple[Entries, Tensor, Tensor, bool]:
        entries, *_ = super().update(*entries, pos=pos, plain=plain)
        window, n_sink = self.keeps
        kept = [i for i in range(self.n_seen) if i < n_sink or self.n_seen - i <= window]
        places = torch.arange(len(kept))[None]
        return tuple(e[..., kept, :] for e in entries), places[:, -1:], places, False


class Forgetful(Dynamic):
    """Spoils each token as soon as no later one of its document may read it; for rows of one document.

    Args:
        window, n_sink: what a token reads.
        keeps: what it tells the model about that.
    """

    exact = False

    def __init__(self, window: int, n_sink: int, keeps: tuple[int, int] | None = None) -> None:
        self.keeps = keeps or (window, n_sink)
        self.holds = (window, n_sink)
        super().__init__()

    def update(self, *entries: Tensor, pos: Tensor, plain: bool) -> tuple[Entries, Tensor, Tensor, bool]:
        entries, q_pos, k_pos, _ = super().update(*entries, pos=pos, plain=plain)
        window, n_sink = self.holds
        place = offset(k_pos)
        spoilt = (place >= n_sink) & (place.amax(-1, keepdim=True) - place >= window - 1)
        self._pos = torch.where(spoilt, NO_TOKEN, k_pos)
        self._entries = tuple(e.masked_fill(spoilt[:, None, :, None], 1e3) for e in entries)
        return entries, q_pos, k_pos, False
