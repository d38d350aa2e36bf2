"""Layers and attention for the step that reads a single token: the same as ever, in fewer operations and calls."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from minitf.blocks.attend.sdpa import attend_sdpa
from minitf.blocks.attention import MultiHeadAttention
from minitf.blocks.layer import is_there
from minitf.blocks.layer.pre_norm import PreNormLayer
from minitf.blocks.position import Position
from minitf.blocks.score.dot import Dot
from minitf.blocks.score.scaled_dot import ScaledDot
from minitf.cache import KVCache
from minitf.generation.joined import JoinedProjection


class OneTokenLayer(PreNormLayer):
    """Takes the place of a layer for which `is_plain` is true; its parts are called without what hooks would need.

    Args:
        layer: what it takes all parts from.
    """

    def __init__(self, layer: PreNormLayer) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(layer.__dict__)
        parts = (self.attention_norm, self.attention, self.ffn_norm, self.ffn)
        self._calls = tuple(part.forward for part in parts)

    def forward(self, x: Tensor, *, position: Position, cache: KVCache | None = None, **where: Any) -> Tensor:
        """As `Layer`."""
        if self.tap is not None:
            return super().forward(x, position=position, cache=cache, **where)
        attention_norm, attention, ffn_norm, ffn = self._calls
        pos, plain = where["pos"], where["plain"]
        x = x + attention(attention_norm(x), pos=pos, plain=plain, position=self.position or position, cache=cache)
        return x + ffn(ffn_norm(x))


def is_plain(layer: nn.Module) -> bool:
    """Whether a layer does nothing but add attention and feed-forward network, each behind its norm."""
    return (
        type(layer) is PreNormLayer
        and is_there(layer.attention)
        and is_there(layer.ffn)
        and not is_there(layer.cross_attention)
        and layer.attention_residual == layer.ffn_residual == 1.0
    )


class OneTokenAttention(MultiHeadAttention):
    """Takes the place of an attention for which `is_short` is true.

    One token has one query per head, so queries, keys and values are one row of heads, of which queries and keys are
    rotated together. Whatever is not a single token that a plain cache takes in goes the way of `MultiHeadAttention`.

    Args:
        attention: what it takes all parts from.
    """

    def __init__(self, attention: MultiHeadAttention) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(attention.__dict__)
        self._heads = (self.n_heads, self.n_kv_heads, self.n_heads // self.n_kv_heads, self.d_head)
        self._scale = self.score.scale if isinstance(self.score, ScaledDot) else 1.0
        self._reads_all = self.mask.plain_causal
        self._make, self._out = self.projection.w_qkv.forward, self.projection.out

    def forward(
        self,
        x: Tensor,
        *,
        pos: Tensor,
        plain: bool,
        position: Position,
        cache: KVCache | None = None,
        **source: Any,
    ) -> Tensor:
        """As `MultiHeadAttention`."""
        if x.size(1) != 1 or cache is None or cache.raw_keys or self.tap is not None:
            return super().forward(x, pos=pos, plain=plain, position=position, cache=cache, **source)
        n_heads, n_kv_heads, group, width = self._heads
        b, n_rotated = x.size(0), n_heads + n_kv_heads
        qkv = self._make(x).view(b, n_rotated + n_kv_heads, 1, width)
        qk, v = qkv.split((n_rotated, n_kv_heads), 1)
        if "rotate" in position.uses:
            qk = position.rotate(qk, pos)
        q, k = qk.split((n_heads, n_kv_heads), 1)
        (k, v), q_pos, k_pos, plain = cache.update(k, v, pos=pos, plain=plain)
        if plain and self._reads_all and "bias" not in position.uses:
            q = q.reshape(b, n_kv_heads, group, width)
            heads = F.scaled_dot_product_attention(q, k, v, scale=self._scale).reshape(b, n_heads, 1, width)
        else:
            bias = position.bias(q_pos, k_pos) if "bias" in position.uses else None
            mask = self._narrowed(cache, plain)
            heads = self._attend(q, (k, v), mask=mask, q_pos=q_pos, k_pos=k_pos, plain=plain, bias=bias)
        return self._out(heads, x)


def is_short(attention: MultiHeadAttention) -> bool:
    """Whether nothing stands between the matrices and the fused function but a rotation."""
    return (
        type(attention) is MultiHeadAttention
        and isinstance(attention.projection, JoinedProjection)
        and attention.fast is attend_sdpa
        and isinstance(attention.score, Dot | ScaledDot)
        and attention.projection.rest.d_value == attention.d_head
        and not attention.normed
        and not attention.reads_previous
    )
