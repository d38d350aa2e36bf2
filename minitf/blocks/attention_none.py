"""No attention."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from minitf.blocks.mask import Mask


class NoAttention(nn.Module):
    """Each token on its own: the layer leaves attention out.

    Source: what is left of Vaswani et al. 2017 is section 3.3, the token-wise network.

    Args:
        d_model: width D of the residual stream.
        n_heads, n_kv_heads, d_head, d_value, dropout, score, normalize, projection, qk_norm, fast, mask: not used; they
            are those of attention, so that it can be left out of any model.
    """

    absent = True
    option = "none"
    accepts = frozenset({"embed"})
    n_heads = 1
    d_rotary = 0

    def __init__(
        self,
        *,
        d_model: int,
        mask: Mask,
        n_heads: int,
        n_kv_heads: int | None,
        d_head: int | None,
        d_value: int | None,
        dropout: float,
        score: Callable[..., nn.Module],
        normalize: Callable[..., nn.Module],
        projection: Callable[..., nn.Module],
        qk_norm: Callable[[int], nn.Module],
        fast: Callable[..., Tensor] | None,
    ) -> None:
        super().__init__()

    def forward(self, x: Tensor, **where: object) -> Tensor:
        """(B,T,D) -> zeros of that shape."""
        return x.new_zeros(x.shape)
