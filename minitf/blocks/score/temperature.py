"""A sharpness that is learned."""

from __future__ import annotations

from torch import Tensor

from minitf.blocks.score import Score
from minitf.blocks.score.factor import HeadFactor


class Temperature(Score):
    """q.k / sqrt(d_head) times a learned positive factor per head. Source: Lee et al. 2021 (locality self-attention).

    Args:
        initial: the factor at the start.
    """

    is_dot = True
    keeps_keys = True

    def __init__(self, *, d_head: int, n_heads: int, initial: float) -> None:
        super().__init__(d_head=d_head, n_heads=n_heads)
        self.scale = d_head**-0.5
        self.factor = HeadFactor(n_heads, initial)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return self.factor((q @ k.transpose(-2, -1)) * self.scale)

    def dot_form(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        return self.factor(q), k, self.scale
