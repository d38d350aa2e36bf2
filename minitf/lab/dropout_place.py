"""Mistake: dropout on the scores."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from minitf.blocks.attention import MultiHeadAttention
from minitf.blocks.normalize import Normalize


class DropoutPlace(MultiHeadAttention):
    """Dropout before the softmax in place of behind it: on the scores, not on the weights."""

    def __init__(self, *, dropout: float, **parts: Any) -> None:
        super().__init__(dropout=0.0, **parts)
        self.normalize = _DropsScores(self.normalize, dropout)
        self.fast = None


class _DropsScores(nn.Module):
    """A normaliser that gets its scores with holes."""

    def __init__(self, inner: Normalize, dropout: float) -> None:
        super().__init__()
        self.inner, self.dropout = inner, dropout

    def forward(self, scores: Tensor, visible: Tensor) -> Tensor:
        return self.inner(F.dropout(scores, self.dropout, self.training), visible)
