"""No attention."""

from __future__ import annotations

from torch import Tensor, nn

from minitf.blocks.mask import Mask


class NoAttention(nn.Module):
    """Each token on its own: the layer leaves attention out.

    Source: what is left of Vaswani et al. 2017 is section 3.3, the token-wise network.

    Args:
        d_model: width D of the residual stream.
        mask: not read.
    """

    absent = True
    accepts = frozenset({"embed"})
    n_heads = 1
    d_rotary = 0

    def __init__(self, *, d_model: int, mask: Mask) -> None:
        super().__init__()

    def forward(self, x: Tensor, **where: object) -> Tensor:
        """(B,T,D) -> zeros of that shape."""
        return x.new_zeros(x.shape)
