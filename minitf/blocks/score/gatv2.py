"""The score of graph attention networks, repaired."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import leaky_relu

from minitf.blocks.checks import check_above
from minitf.blocks.score.additive import Additive


class GATv2(Additive):
    """v.LeakyReLU(q W_q + k W_k): v comes after the bend, so each query may have a best key of its own.

    Args:
        chunk: number of queries at a time; null: all at once.
        slope: of LeakyReLU below zero; the paper takes 0.2.

    Source: Brody, Alon and Yahav 2022 (GATv2), section 3.
    """

    def __init__(self, *, d_head: int, n_heads: int, chunk: int | None, slope: float) -> None:
        super().__init__(d_head=d_head, n_heads=n_heads, chunk=chunk)
        check_above(0, "0.2 is usual", **{"score slope": slope})
        self.slope = slope

    def activate(self, hidden: Tensor) -> Tensor:
        return leaky_relu(hidden, self.slope)
