"""Normal values, by the number of inputs, for ReLU."""

from torch import nn

from minitf.blocks.init import Rule


class Kaiming(Rule):
    """N(0, 2 / inputs), which keeps the scale from layer to layer behind ReLU. Source: He et al. 2015, equation 10.

    Attention has no ReLU: queries and keys start with a variance of 2, scaled scores with a standard deviation of 2.
    A table counts as a matrix with d_model inputs, as it does when the head is tied to it.
    """

    def matrix(self, linear: nn.Linear) -> None:
        nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")

    def table(self, embedding: nn.Embedding) -> None:
        nn.init.kaiming_normal_(embedding.weight, nonlinearity="relu")
