"""Layers: how attention, feed-forward network, norms and residual stream are put together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from torch import Tensor, nn

from minitf.blocks.checks import check_finite, check_probability
from minitf.blocks.position import Position
from minitf.cache import KVCache
from minitf.tap import Tappable

Sublayer = Callable[[Tensor], Tensor]


class Layer(Tappable):
    """What every layer holds; a sublayer with the attribute `absent` is left out together with its norm.

    Args:
        d_model: width D of the residual stream.
        attention, ffn: the two sublayers, ready made.
        norm: factory of a norm, called with d_model.
        dropout: probability of dropping an element of a sublayer's output while training.
        attention_residual, ffn_residual: factor of the skip around each sublayer; 0.0 removes it. That of attention
            holds for cross-attention too.
        cross_attention: a third sublayer between the two, which reads another sequence; None: there is none.
        position: a position scheme of this layer alone; None: that of the stack.

    Attributes:
        needs_final_norm: whether the stack must end with a norm.
        n_writes: how many sublayers write into the residual stream.
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
        cross_attention: nn.Module | None = None,
        position: Position | None = None,
    ) -> None:
        super().__init__()
        check_probability("dropout", dropout)
        check_finite(attention_residual=attention_residual, ffn_residual=ffn_residual)
        self.attention, self.cross_attention, self.ffn = attention, cross_attention, ffn
        self.attention_norm = self.make_norm(attention, norm, d_model)
        self.cross_norm = self.make_norm(cross_attention, norm, d_model)
        self.ffn_norm = self.make_norm(ffn, norm, d_model)
        self.dropout = nn.Dropout(dropout)
        self.attention_residual = attention_residual
        self.ffn_residual = ffn_residual
        self.position = position
        self.n_writes = sum(map(is_there, (attention, cross_attention, ffn)))

    def make_norm(self, sublayer: nn.Module | None, norm: Callable[[int], nn.Module], d_model: int) -> nn.Module | None:
        """The norm, or norms, that `around` gets for a sublayer; None for a sublayer that is not there."""
        return norm(d_model) if is_there(sublayer) else None

    def forward(
        self,
        x: Tensor,
        *,
        pos: Tensor,
        plain: bool,
        position: Position,
        memory: Tensor | None = None,
        memory_pos: Tensor | None = None,
        cache: KVCache | None = None,
        cross_cache: KVCache | None = None,
    ) -> Tensor:
        """(B,T,D) -> (B,T,D).

        Args:
            x, pos, plain, position, cache: as for attention.
            memory, memory_pos: the other sequence (B,S,D) for cross-attention, and its positions.
            cross_cache: keeps what cross-attention makes of it.
        """
        where = {"pos": pos, "plain": plain, "position": self.position or position}
        source = {"memory": memory, "memory_pos": memory_pos, "cache": cross_cache}
        if self.tap is not None:
            x = self.tap("resid_in", x)
        if is_there(self.attention):
            read = partial(self.attention, **where, cache=cache)
            x = self.around(x, read, self.attention_norm, self.attention_residual)
        elif cache is not None:
            cache.update(pos=pos, plain=plain)  # keeps nothing, but counts the tokens for the next call
        if is_there(self.cross_attention):
            read = partial(self.cross_attention, **where, **source)
            x = self.around(x, read, self.cross_norm, self.attention_residual)
        if self.tap is not None:
            x = self.tap("resid_mid", x)
        if is_there(self.ffn):
            x = self.around(x, self.ffn, self.ffn_norm, self.ffn_residual)
        if self.tap is not None:
            x = self.tap("resid_out", x)
        return x

    def around(self, x: Tensor, sublayer: Sublayer, norm: nn.Module, residual: float) -> Tensor:
        """A sublayer with its norm and skip.

        Args:
            x: (B,T,D).
            sublayer: (B,T,D) -> (B,T,D).
            norm: what `make_norm` made for it.
            residual: factor of the skip.

        Returns:
            (B,T,D).
        """
        raise NotImplementedError


def is_there(sublayer: nn.Module | None) -> bool:
    """False for None, and for a part that stands for "none"."""
    return sublayer is not None and not getattr(sublayer, "absent", False)


def skip(x: Tensor, factor: float) -> Tensor:
    """x times the residual factor; x itself when it is 1."""
    return x if factor == 1.0 else x * factor
