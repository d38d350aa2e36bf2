"""Mistake: True means the other thing."""

from __future__ import annotations

from torch import Tensor

from minitf.blocks.mask.causal import Causal


class MaskConvention(Causal):
    """A mask that says which keys to hide, given to code that takes it for the keys to see."""

    plain_causal = False

    def visible(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return ~super().visible(q_pos, k_pos)
