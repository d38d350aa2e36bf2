"""No feed-forward network."""

from torch import Tensor, nn


class NoFeedForward(nn.Module):
    """Nothing between two attentions: the layer leaves it out. Source: Elhage et al. 2021 (attention-only models).

    Args:
        d_model: width D.
    """

    absent = True

    def __init__(self, *, d_model: int) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        """(B,T,D) -> zeros of that shape."""
        return x.new_zeros(x.shape)
