"""Small normal values."""

import math

from torch import nn

from minitf.blocks.checks import check_above
from minitf.blocks.init import Rule, drawing
from minitf.blocks.stack import Stack


class Gpt2(Rule):
    """N(0, std) for every matrix and table, matrices that write into the residual stream divided by sqrt(2 n_layers).

    Biases start at 0, norms at 1. A stack whose sublayers write other than 2 n_layers times divides by the square root
    of that number. Source: Radford et al. 2019 (GPT-2), section 2.3.

    Args:
        std: standard deviation.
    """

    def __init__(self, std: float) -> None:
        check_above(0, "0.02 is usual", **{"init std": std})
        self.std = std

    def __call__(self, model: nn.Module) -> None:
        super().__call__(model)
        draw = drawing(model)
        for stack in model.modules():
            if isinstance(stack, Stack):
                small = self.std / math.sqrt(max(1, stack.n_writes))
                for module in stack.modules():
                    if isinstance(output := getattr(module, "residual_output", None), nn.Linear):
                        with draw(output.weight):
                            nn.init.normal_(output.weight, std=small)

    def matrix(self, linear: nn.Linear) -> None:
        nn.init.normal_(linear.weight, std=self.std)

    def table(self, embedding: nn.Embedding) -> None:
        nn.init.normal_(embedding.weight, std=self.std)
