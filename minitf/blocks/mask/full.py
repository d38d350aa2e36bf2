"""Everything may be read."""

from __future__ import annotations

from torch import Tensor

from minitf.blocks.mask import Mask


class Full(Mask):
    """Every token reads every token of its document (encoders, cross-attention)."""

    plain_full = True

    def rule(self, q_off: Tensor, k_off: Tensor) -> bool:
        return True
