"""The score of the Transformer."""

from __future__ import annotations

from torch import Tensor

from minitf.blocks.score import Score


class ScaledDot(Score):
    """q.k / sqrt(d_head): unit variance for unit-variance q and k. Source: Vaswani et al. 2017, equation 1."""

    is_dot = True
    keeps_keys = True

    def __init__(self, *, d_head: int, n_heads: int) -> None:
        super().__init__(d_head=d_head, n_heads=n_heads)
        self.scale = d_head**-0.5

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return (q @ k.transpose(-2, -1)) * self.scale

    def dot_form(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        return q, k, self.scale
