"""Only the own block may be read."""

from __future__ import annotations

from torch import Tensor

from minitf.blocks.checks import check_positive
from minitf.blocks.mask import Mask


class BlockLocal(Mask):
    """The document is cut into blocks of `block` tokens; a token reads those of its own block.

    Source: Liu et al. 2018 (Generating Wikipedia), local attention.
    """

    def __init__(self, block: int) -> None:
        check_positive(block=block)
        self.block = block
        self.probe = block
        self.reach = (block - 1, block - 1)

    def rule(self, q_off: Tensor, k_off: Tensor) -> Tensor:
        return q_off // self.block == k_off // self.block
