"""Normalisers: how a row of scores becomes a row of weights."""

from typing import ClassVar

import torch
from torch import Tensor, nn


class Normalize(nn.Module):
    """The interface of every normaliser.

    Args:
        n_heads: query heads H.

    Attributes:
        invariants: which laws its weights obey, of
            "distribution": each row that may read something has weights of at least 0 that sum to 1;
            "permutation": reordering the keys reorders the weights;
            "row_independence": a row of weights depends on its own row of scores alone.
        is_softmax: True if this is the plain softmax, which the fast path computes.
    """

    is_softmax: ClassVar[bool] = False
    invariants: ClassVar[frozenset[str]] = frozenset({"distribution", "permutation", "row_independence"})

    def __init__(self, *, n_heads: int) -> None:
        super().__init__()

    def forward(self, scores: Tensor, visible: Tensor) -> Tensor:
        """Weights from scores.

        Args:
            scores: (B,H,T,S), any float dtype.
            visible: bool, broadcastable to `scores`; True where the key may be read.

        Returns:
            (B,H,T,S) in float32 (float64 stays): exactly 0 where hidden, and a row that may read nothing is all 0.

        Raises:
            TypeError: `visible` is not boolean; a float mask would be read with another meaning.
        """
        raise NotImplementedError


def hide(scores: Tensor, visible: Tensor) -> Tensor:
    """Scores in at least float32 with -inf where hidden."""
    if visible.dtype != torch.bool:
        raise TypeError(f"a mask must be boolean with True = may be read, got {visible.dtype}")
    wide = scores if scores.dtype == torch.float64 else scores.float()
    return wide.masked_fill(~visible, float("-inf"))
