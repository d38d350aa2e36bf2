"""Some matrices larger or smaller."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import nn

from minitf.blocks.checks import check_above
from minitf.blocks.ffn import FeedForward
from minitf.blocks.init import Modifier, matrices
from minitf.errors import ConfigError


class Gain(Modifier):
    """W_Q and W_K times a factor, so scores times its square: sharp attention from the start. Source: none, a dial.

    In a projection without w_q only the keys grow, and scores by the factor itself.

    Args:
        base: rule that fills the model first.
        factor: 1.0 changes nothing.
    """

    says = "4 makes scores 16 times as large; model/init=zero_qk is for 0"

    def __init__(self, base: Callable[[nn.Module], None], factor: float) -> None:
        check_above(0, self.says, **{"init factor": factor})
        super().__init__(base)
        self.factor = factor

    def changed(self, model: nn.Module) -> Iterable[nn.Linear]:
        """The matrices that grow."""
        return matrices(model, "w_q", "w_k", "w_k_rotary", what="gain")

    def change(self, model: nn.Module) -> None:
        for matrix in self.changed(model):
            matrix.weight *= self.factor


class FFNGain(Gain):
    """Every matrix of the FFN times a factor. Source: none, a dial.

    After unit_variance a factor of 3^-0.5 gives the variance that torch's own nn.Linear starts with, 1 / (3 inputs).
    """

    says = "0.577 after unit_variance is the variance of torch's own start"

    def changed(self, model: nn.Module) -> Iterable[nn.Linear]:
        networks = [module for module in model.modules() if isinstance(module, FeedForward)]
        if not networks:
            raise ConfigError(
                "init=ffn_gain changes the matrices of the FFN, which this model has none of: choose model/ffn=gelu "
                "or another, or leave this rule away"
            )
        return [matrix for network in networks for matrix in network.children() if isinstance(matrix, nn.Linear)]
