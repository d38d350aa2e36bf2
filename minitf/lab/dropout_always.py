"""Mistake: dropout that does not know of evaluation."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from minitf.blocks.attention import MultiHeadAttention
from minitf.blocks.normalize import Normalize


class DropoutAlways(MultiHeadAttention):
    """F.dropout(weights, p) without `training=self.training`: the default of torch is True.

    Written by mistake: nn.Dropout knows the mode of its module, the function does not.

    Symptom: validation is worse than it could be, and other each time: with p = 0.1 loss 0.13 to 0.14 and accuracy
    0.967 to 0.971, beside 0.028 to 0.038 and 0.991 to 0.992 with dropout in training alone.

    Named by: two passes in evaluation differ.

    Args:
        dropout: probability of dropping a weight.
        parts: all other arguments of `MultiHeadAttention`.
    """

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
