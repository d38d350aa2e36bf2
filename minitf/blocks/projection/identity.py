"""Attention without any matrix."""

from __future__ import annotations

from torch import Tensor

from minitf.blocks.projection import Projection, check_cut, check_same_heads, check_same_width, merge_heads, split_heads


class Identity(Projection):
    """Q = K = V = X cut into heads, which are put side by side again. Source: Vaswani et al. 2017, equation 1 alone.

    There is nothing to learn: each token reads what is most like itself.
    """

    def check(self) -> None:
        check_cut(self)
        check_same_heads(self)
        check_same_width(self)
        super().check()

    def q(self, x: Tensor) -> Tensor:
        return split_heads(x, self.n_heads)

    def k(self, source: Tensor) -> Tensor:
        return self.q(source)

    def v(self, source: Tensor) -> Tensor:
        return self.q(source)

    def out(self, heads: Tensor, x: Tensor) -> Tensor:
        return merge_heads(heads)
