"""Queries that start at zero."""

from torch import nn

from minitf.blocks.init import Modifier, matrices


class ZeroQ(Modifier):
    """W_Q = 0: every token first reads all others evenly, and W_Q learns. Source: Yang et al. 2022, appendix D.2.

    The gradient of W_K is 0 in the first step, that of W_Q is not. Where one matrix makes queries and keys
    (projection tied_qk), neither can leave 0.

    Args:
        base: rule that fills the model first.
    """

    def change(self, model: nn.Module) -> None:
        for w_q in matrices(model, "w_q", what="zero_q"):
            nn.init.zeros_(w_q.weight)
