"""Larger or smaller queries and keys."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from minitf.blocks.checks import check_above
from minitf.blocks.init import Modifier, matrices


class Gain(Modifier):
    """W_Q and W_K times a factor, so scores times its square: sharp attention from the start. Source: none, a dial.

    In a projection without w_q only the keys grow, and scores by the factor itself.

    Args:
        base: rule that fills the model first.
        factor: 1.0 changes nothing.
    """

    def __init__(self, base: Callable[[nn.Module], None], factor: float) -> None:
        check_above(0, "4 makes scores 16 times as large; model/init=zero_qk is for 0", **{"init factor": factor})
        super().__init__(base)
        self.factor = factor

    def change(self, model: nn.Module) -> None:
        for matrix in matrices(model, "w_q", "w_k", "w_k_rotary", what="gain"):
            matrix.weight *= self.factor
