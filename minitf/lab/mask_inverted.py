"""Mistake: the wrong triangle."""

from __future__ import annotations

from torch import Tensor

from minitf.blocks.mask import Mask


class MaskInverted(Mask):
    """triu in place of tril: a token reads itself and what comes after it."""

    reach = (None, 0)  # what its author believes

    def rule(self, q_off: Tensor, k_off: Tensor) -> Tensor:
        return k_off >= q_off
