"""Mistake: True means the other thing."""

from __future__ import annotations

from torch import Tensor

from minitf.blocks.mask.causal import Causal


class MaskConvention(Causal):
    """A mask that says which keys to hide, given to code that takes it for the keys to see.

    Written by mistake: torch's two attentions mean opposite things by True. A causal mask read so shows a token what
    comes later, padding and other documents, and neither itself nor the past. The last token reads nothing; in code
    that softmaxes a row of -inf, it is nan.

    Symptom: as for the wrong triangle: accuracy 0.94, loss 0.20, while written text is right by chance only.

    Named by: as for the wrong triangle, but a token does not read itself; padding and other documents are read.
    """

    plain_causal = False

    def visible(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return ~super().visible(q_pos, k_pos)
