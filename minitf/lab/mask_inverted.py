"""Mistake: the wrong triangle."""

from __future__ import annotations

from torch import Tensor

from minitf.blocks.mask import Mask


class MaskInverted(Mask):
    """triu in place of tril: a token reads itself and what comes after it.

    Written by mistake: the wrong triangle, or the axes of query and key changed over.

    Symptom: every answer but the last of a row is copied from the next token, so the loss is low (accuracy 0.939, which
    is all of those; the 0.22 of the loss is that of the last ones, which nothing follows). Written text is wrong.

    Named by: outputs change with later tokens, not with earlier ones; a token reads itself.
    """

    reach = (None, 0)  # what its author believes

    def rule(self, q_off: Tensor, k_off: Tensor) -> Tensor:
        return k_off >= q_off
