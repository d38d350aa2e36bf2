"""What is near, and every so-manieth token before."""

from __future__ import annotations

from torch import Tensor

from minitf.blocks.checks import check_positive
from minitf.blocks.mask import Mask


class Strided(Mask):
    """Causal; the last `stride` tokens, itself included, and each that lies a multiple of `stride` back.

    A row reads about stride + n / stride keys, fewest at stride = sqrt(n): 2 sqrt(n). Two layers connect everything.

    Source: Child et al. 2019 (Sparse Transformers), strided attention, both sets in one merged head.
    """

    def __init__(self, stride: int) -> None:
        check_positive(stride=stride)
        self.stride = stride
        self.plain_causal = stride == 1
        self.reach = (None, 0)

    def rule(self, q_off: Tensor, k_off: Tensor) -> Tensor:
        back = q_off - k_off
        return (back >= 0) & ((back < self.stride) | (back % self.stride == 0))
