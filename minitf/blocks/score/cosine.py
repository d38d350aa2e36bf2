"""The angle instead of the product."""

from __future__ import annotations

from torch import Tensor

from minitf.blocks.checks import check_above
from minitf.blocks.norm.l2 import unit
from minitf.blocks.score import Score
from minitf.blocks.score.factor import HeadFactor


class Cosine(Score):
    """cos(q, k) times a learned positive factor per head. Source: Henry et al. 2020; Liu et al. 2022 (Swin V2).

    Args:
        initial: the factor at the start; Swin V2 takes 10.
        eps: added to the squared lengths, so that a zero vector has the score 0.
    """

    is_dot = True

    def __init__(self, *, d_head: int, n_heads: int, initial: float, eps: float) -> None:
        super().__init__(d_head=d_head, n_heads=n_heads)
        check_above(0, "1e-6 is usual", **{"score eps": eps})
        self.eps = eps
        self.factor = HeadFactor(n_heads, initial)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return self.factor(unit(q, self.eps) @ unit(k, self.eps).transpose(-2, -1))

    def dot_form(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        return self.factor(unit(q, self.eps)), unit(k, self.eps), 1.0
