"""Sharper where there is more to read."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from minitf.blocks.checks import check_above
from minitf.blocks.score import Score


class LogLength(Score):
    """Another score times log(visible keys) / log(base). Source: Su 2021; Chiang and Cholak 2022.

    It keeps the weights from flattening out in rows that are longer than those of the training.

    Args:
        inner: factory of the other score.
        base: number of visible keys at which the inner score stays as it is, for example the length in training.
    """

    def __init__(self, *, d_head: int, n_heads: int, inner: Callable[..., Score], base: float) -> None:
        super().__init__(d_head=d_head, n_heads=n_heads)
        check_above(1, "the length of the rows in training is usual", **{"score base": base})
        self.inner = inner(d_head=d_head, n_heads=n_heads)
        self.base = base

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return self.inner(q, k)

    def by_row(self, scores: Tensor, n_visible: Tensor) -> Tensor:
        scores = self.inner.by_row(scores, n_visible)
        wide = n_visible.clamp_min(1).to(torch.promote_types(scores.dtype, torch.float32))
        return scores * (wide.log() / math.log(self.base)).to(scores.dtype)
