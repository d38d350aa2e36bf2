"""Norm after each sublayer."""

from __future__ import annotations

from torch import Tensor, nn

from minitf.blocks.layer import Layer, Sublayer, skip


class PostNormLayer(Layer):
    """norm(x + f(x)), as in the first Transformer. Source: Vaswani et al. 2017, section 3.1."""

    needs_final_norm = False

    def around(self, x: Tensor, sublayer: Sublayer, norm: nn.Module, residual: float) -> Tensor:
        return norm(skip(x, residual) + self.dropout(sublayer(x)))
