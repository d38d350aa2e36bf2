"""A token does not read itself."""

from __future__ import annotations

from torch import Tensor

from minitf.blocks.mask import Mask


class ClosedDiagonal(Mask):
    """A token may not read itself, except the first of its document, so that also a causal row is never empty.

    An idle head cannot rest on its own token then, and turns to the first one.

    Source: Kitaev et al. 2020 (Reformer), causal masking for shared queries and keys.
    """

    def rule(self, q_off: Tensor, k_off: Tensor) -> Tensor:
        return (k_off != q_off) | (q_off == 0)
