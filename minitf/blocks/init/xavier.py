"""Uniform values, by the number of inputs and outputs."""

from torch import nn

from minitf.blocks.init import Rule


class Xavier(Rule):
    """U(-a, a) with a = sqrt(6 / (inputs + outputs)). Source: Glorot and Bengio 2010, equation 16.

    All heads of a projection are one matrix here, see `xavier_per_head`. A table counts as a matrix from d_model to its
    rows, as it does when the head is tied to it.
    """

    def matrix(self, linear: nn.Linear) -> None:
        nn.init.xavier_uniform_(linear.weight)

    def table(self, embedding: nn.Embedding) -> None:
        nn.init.xavier_uniform_(embedding.weight)
