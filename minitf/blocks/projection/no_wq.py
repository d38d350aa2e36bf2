"""Queries without a matrix."""

from __future__ import annotations

from torch import Tensor

from minitf.blocks.projection import check_cut, split_heads
from minitf.blocks.projection.free import Free


class NoWQ(Free):
    """No w_q: the queries are x itself, cut into heads. Source: the query of Luong et al. 2015, section 3.1.

    There the decoder's state is compared with the encoder's as it is. With one head the score x_i W_K^T x_j is still
    free, w_k alone can hold any product of the two matrices; several heads can each use only their own features of x_i.
    """

    def check(self) -> None:
        check_cut(self)
        super().check()

    def shapes(self) -> dict[str, tuple[int, int]]:
        shapes = super().shapes()
        del shapes["w_q"]
        return shapes

    def q(self, x: Tensor) -> Tensor:
        return split_heads(x, self.n_heads)
