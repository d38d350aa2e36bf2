"""Nothing later may be read."""

from __future__ import annotations

from torch import Tensor

from minitf.blocks.mask import Mask


class Causal(Mask):
    """A token reads itself and what stands before it.

    Source: Vaswani et al. 2017, section 3.2.3 (decoder).
    """

    plain_causal = True
    reach = (None, 0)

    def rule(self, q_off: Tensor, k_off: Tensor) -> Tensor:
        return k_off <= q_off
