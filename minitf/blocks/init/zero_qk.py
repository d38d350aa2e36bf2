"""Queries and keys that start at zero."""

from torch import nn

from minitf.blocks.init import Modifier, matrices


class ZeroQK(Modifier):
    """W_Q = W_K = 0: each gradient is a multiple of the other matrix, so both stay 0. Source: none, a counterfactual.

    Attention stays even for ever where the score is a product of query and key, with biases too, which start at 0; an
    additive score learns. Compare with `zero_q`.

    Args:
        base: rule that fills the model first.

    Raises:
        ConfigError: a model without w_q, whose keys alone would be 0: they would learn.
    """

    def change(self, model: nn.Module) -> None:
        matrices(model, "w_q", what="zero_qk")  # raises where there is none
        for matrix in matrices(model, "w_q", "w_k", "w_k_rotary", what="zero_qk"):
            nn.init.zeros_(matrix.weight)
