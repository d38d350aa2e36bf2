"""Layers: how attention, feed-forward network, norms and residual stream are put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor, nn

from minitf.blocks.checks import check_finite, check_probability
from minitf.blocks.position import Position
from minitf.cache import KVCache
from minitf.tap import Tappable


class Layer(Tappable):
    """What every layer holds.

    Args:
        d_model: width D of the residual stream.
        attention, ffn: the two sublayers, ready made.
        norm: factory of a norm, called with d_model.
        dropout: probability of dropping an element of a sublayer's output while training.
        attention_residual, ffn_residual: factor of the skip around each sublayer; 0.0 removes it.

    Attributes:
        needs_final_norm: whether the stack must end with a norm.
    """

    tap_points = ("resid_in", "resid_mid", "resid_out")
    needs_final_norm: ClassVar[bool]

    def __init__(
        self,
        *,
        d_model: int,
        attention: nn.Module,
        ffn: nn.Module,
        norm: Callable[[int], nn.Module],
        dropout: float,
        attention_residual: float = 1.0,
        ffn_residual: float = 1.0,
    ) -> None:
        super().__init__()
        check_probability("dropout", dropout)
        check_finite(attention_residual=attention_residual, ffn_residual=ffn_residual)
        self.attention = attention
        self.ffn = ffn
        self.attention_norm = norm(d_model)
        self.ffn_norm = norm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.attention_residual = attention_residual
        self.ffn_residual = ffn_residual

    def forward(
        self, x: Tensor, *, pos: Tensor, plain: bool, position: Position, cache: KVCache | None = None
    ) -> Tensor:
        """(B,T,D) -> (B,T,D); arguments as for attention."""
        if self.tap is not None:
            x = self.tap("resid_in", x)
        x = self.around_attention(x, pos=pos, plain=plain, position=position, cache=cache)
        if self.tap is not None:
            x = self.tap("resid_mid", x)
        x = self.around_ffn(x)
        if self.tap is not None:
            x = self.tap("resid_out", x)
        return x

    def around_attention(self, x: Tensor, **where: object) -> Tensor:
        """(B,T,D) -> (B,T,D): attention with its norm and skip; `where` as for attention."""
        raise NotImplementedError

    def around_ffn(self, x: Tensor) -> Tensor:
        """(B,T,D) -> (B,T,D): the feed-forward network with its norm and skip."""
        raise NotImplementedError


class PreNormLayer(Layer):
    """x + f(norm(x)): the residual stream itself is never normed. Source: Xiong et al. 2020, figure 1 (b)."""

    needs_final_norm = True

    def around_attention(self, x: Tensor, **where: object) -> Tensor:
        """(B,T,D) -> (B,T,D)."""
        return skip(x, self.attention_residual) + self.dropout(self.attention(self.attention_norm(x), **where))

    def around_ffn(self, x: Tensor) -> Tensor:
        """(B,T,D) -> (B,T,D)."""
        return skip(x, self.ffn_residual) + self.dropout(self.ffn(self.ffn_norm(x)))


class PostNormLayer(Layer):
    """norm(x + f(x)), as in the first Transformer. Source: Vaswani et al. 2017, section 3.1."""

    needs_final_norm = False

    def around_attention(self, x: Tensor, **where: object) -> Tensor:
        """(B,T,D) -> (B,T,D)."""
        return self.attention_norm(skip(x, self.attention_residual) + self.dropout(self.attention(x, **where)))

    def around_ffn(self, x: Tensor) -> Tensor:
        """(B,T,D) -> (B,T,D)."""
        return self.ffn_norm(skip(x, self.ffn_residual) + self.dropout(self.ffn(x)))


def skip(x: Tensor, factor: float) -> Tensor:
    """x times the residual factor; x itself when it is 1."""
    return x if factor == 1.0 else x * factor
