"""A prefix that everybody reads."""

from __future__ import annotations

from torch import Tensor

from minitf.blocks.checks import check_positive
from minitf.blocks.mask import Mask


class PrefixLM(Mask):
    """The first `n_prefix` tokens are read by every token, in both directions; after them the mask is causal.

    Inside the prefix a token reads later ones, so this is no mask for next-token training.

    Source: Raffel et al. 2020 (T5), section 3.2.1, figure 3.
    """

    def __init__(self, n_prefix: int) -> None:
        check_positive(n_prefix=n_prefix)
        self.n_prefix = n_prefix
        self.probe = n_prefix
        self.plain_causal = n_prefix == 1
        self.reach = (None, n_prefix - 1)

    def rule(self, q_off: Tensor, k_off: Tensor) -> Tensor:
        return (k_off <= q_off) | (k_off < self.n_prefix)
