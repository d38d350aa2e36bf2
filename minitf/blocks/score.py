"""Scores: how well a query fits a key."""

from __future__ import annotations

from torch import Tensor, nn


class Score(nn.Module):
    """The interface of every score.

    Attributes:
        scale: not None exactly when the score is q.k times it; then the fast path may run.
    """

    scale: float | Tensor | None = None

    def __init__(self, *, d_head: int) -> None:
        super().__init__()

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        """(B,H,T,d), (B,H,S,d) -> (B,H,T,S)."""
        raise NotImplementedError


class ScaledDot(Score):
    """q.k / sqrt(d_head): unit variance for unit-variance q and k. Source: Vaswani et al. 2017, equation 1."""

    def __init__(self, *, d_head: int) -> None:
        super().__init__(d_head=d_head)
        self.scale = d_head**-0.5

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return (q @ k.transpose(-2, -1)) * self.scale
