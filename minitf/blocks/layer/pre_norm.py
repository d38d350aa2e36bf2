"""Norm before each sublayer."""

from __future__ import annotations

from torch import Tensor, nn

from minitf.blocks.layer import Layer, Sublayer, skip


class PreNormLayer(Layer):
    """x + f(norm(x)): the residual stream itself is never normed. Source: Xiong et al. 2020, figure 1 (b)."""

    needs_final_norm = True

    def around(self, x: Tensor, sublayer: Sublayer, norm: nn.Module, residual: float) -> Tensor:
        return skip(x, residual) + self.dropout(sublayer(norm(x)))
