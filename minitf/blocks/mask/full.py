"""Everything may be read."""

from __future__ import annotations

from torch import Tensor

from minitf.blocks.mask import Mask


class Full(Mask):
    """Every token reads every token of its document (encoders, cross-attention).

    Source: Vaswani et al. 2017, section 3.2.3 (encoder).
    """

    plain_full = True

    def rule(self, q_off: Tensor, k_off: Tensor) -> bool:
        return True
