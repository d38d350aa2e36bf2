"""No normalisation."""

from torch import nn


class NoNorm(nn.Identity):
    """Leave each vector as it is.

    Args:
        d_model: width D.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
