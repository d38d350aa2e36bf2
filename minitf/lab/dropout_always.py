"""Mistake: dropout that does not know of evaluation."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from minitf.blocks.attention import MultiHeadAttention
from minitf.blocks.normalize import Normalize


class DropoutAlways(MultiHeadAttention):
    """F.dropout(weights, p) without `training=self.training`: the default of torch is True."""

    def __init__(self, *, dropout: float, **parts: Any) -> None:
        super().__init__(dropout=0.0, **parts)
        self.normalize = _AlwaysDrops(self.normalize, dropout)
        self.fast = None


class _AlwaysDrops(nn.Module):
    """A normaliser whose weights are dropped behind it, whatever the mode."""

    def __init__(self, inner: Normalize, dropout: float) -> None:
        super().__init__()
        self.inner, self.dropout = inner, dropout

    def forward(self, scores: Tensor, visible: Tensor) -> Tensor:
        return F.dropout(self.inner(scores, visible), self.dropout)
