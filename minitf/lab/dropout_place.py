"""Mistake: dropout on the scores."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from minitf.blocks.attention import MultiHeadAttention
from minitf.blocks.normalize import Normalize


class DropoutPlace(MultiHeadAttention):
    """Dropout before the softmax in place of behind it: on the scores, not on the weights.

    Written by mistake: the two lines in the wrong order. A dropped score is 0, which is no weight of 0: a key that was
    far below the others gets more weight than before, no weight is ever dropped, and the scores that stay grow by
    1 / (1 - p), so rows get sharper.

    Symptom: hardly any, which is why it stays: with p = 0.1 loss 0.039 to 0.041 and accuracy 0.989 to 0.991, beside
    0.028 to 0.038 and 0.991 to 0.992 with dropout in its place.

    Named by: in training the weights that act are others than in evaluation, but none is 0, or those that stay are not
    all larger by the same factor.

    Args:
        dropout: probability of dropping a score.
        parts: all other arguments of `MultiHeadAttention`.
    """

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
