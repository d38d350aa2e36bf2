"""Norm before and after each sublayer."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from minitf.blocks.layer import Layer, Sublayer, is_there, skip


class SandwichLayer(Layer):
    """x + norm(f(norm(x))): what is added has unit size too.

    Source: Ding et al. 2021 (CogView), as Sandwich-LN; Gemma Team 2024 (Gemma 2).
    """

    needs_final_norm = True

    def make_norm(self, sublayer: nn.Module | None, norm: Callable[[int], nn.Module], d_model: int) -> nn.Module | None:
        return nn.ModuleList([norm(d_model), norm(d_model)]) if is_there(sublayer) else None

    def around(self, x: Tensor, sublayer: Sublayer, norm: nn.Module, residual: float) -> Tensor:
        before, after = norm
        return skip(x, residual) + self.dropout(after(sublayer(before(x))))
