"""No normalisation."""

from torch import nn


class NoNorm(nn.Identity):
    """Leave each vector as it is. Source: Zhang et al. 2019 (Fixup) train without norms.

    Args:
        d_model: width D.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
