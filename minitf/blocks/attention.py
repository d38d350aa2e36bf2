"""Attention: read from other tokens. One module for MHA, GQA and MQA."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from minitf.blocks.attend import unchecked
from minitf.blocks.attend.reference import attend_reference
from minitf.blocks.checks import check_positive, check_probability
from minitf.blocks.mask import Mask
from minitf.blocks.mask.full import Full
from minitf.blocks.mask.sliding_window import SlidingWindow
from minitf.blocks.norm.none import NoNorm
from minitf.blocks.normalize import Normalize
from minitf.blocks.position import Position
from minitf.blocks.projection import Projection
from minitf.blocks.score import Score
from minitf.cache import KVCache
from minitf.errors import ConfigError
from minitf.positions import before_renumbering
from minitf.tap import OVER_KEYS, Tappable


class MultiHeadAttention(Tappable):
    """Attention with n_heads queries and n_kv_heads keys and values: MHA, GQA (fewer) or MQA (one).

    Args:
        d_model: width D of the residual stream.
        mask: which key a query may read.
        n_heads: query heads H.
        n_kv_heads: key/value heads G; null means as many as n_heads.
        d_head: width d of queries and keys; null means d_model / n_heads.
        d_value: width d_v of values; null means d_head.
        dropout: probability of dropping an attention weight while training.
        score, normalize, projection: factories of the parts.
        qk_norm: factory of a norm over d_head, applied to queries and keys before they are rotated.
        fast: a function like `attend_sdpa`, or null to compute by definition always.

    Attributes:
        reads_previous: whether a key depends on the token before it, so that a cache must still hold that one.

    Raises:
        ConfigError: sizes that do not divide.

    Source: Vaswani et al. 2017, section 3.2; Shazeer 2019 (MQA); Ainslie et al. 2023 (GQA).
    """

    tap_points = ("q", "k", "v", "scores", "weights", "heads")
    accepts = frozenset({"embed", "rotate", "bias"})

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
        score: Callable[..., Score],
        normalize: Callable[..., Normalize],
        projection: Callable[..., Projection],
        qk_norm: Callable[[int], nn.Module],
        fast: Callable[..., Tensor] | None,
    ) -> None:
        super().__init__()
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        d_head = head_width(d_model, n_heads, n_kv_heads, d_head)
        if d_value is None:
            d_value = d_head
        check_positive(d_value=d_value)
        check_probability("attention dropout", dropout)
        self.n_heads, self.n_kv_heads, self.d_head, self.d_rotary = n_heads, n_kv_heads, d_head, d_head
        self.mask = mask
        self.dropout = dropout
        self.score = score(d_head=d_head, n_heads=n_heads)
        self.normalize = normalize(n_heads=n_heads)
        self.projection = projection(
            d_model=d_model, n_heads=n_heads, n_kv_heads=n_kv_heads, d_head=d_head, d_value=d_value
        )
        self.q_norm, self.k_norm = qk_norm(d_head), qk_norm(d_head)
        self.normed = not isinstance(self.q_norm, NoNorm)
        self.reads_previous = self.projection.reads_previous
        self.fast = unchecked(fast) if self.score.is_dot and self.normalize.is_softmax else None

    def queries(self, x: Tensor) -> Tensor:
        """(B,T,D) -> (B,H,T,d)."""
        return self.q_norm(self.projection.q(x))

    def entries(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """What a cache keeps of `source`, see `minitf.cache`: keys (B,G,S,d) and values (B,G,S,d_v)."""
        k, v = self.projection.kv(source)
        return self.k_norm(k), v

    def queries_and_entries(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """`queries` and `entries` of the same tokens (B,T,D)."""
        q, k, v = self.projection.qkv(x)
        return (self.q_norm(q), (self.k_norm(k), v)) if self.normed else (q, (k, v))

    def expand(self, entries: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Keys and values from what a cache keeps."""
        k, v = entries
        return k, v

    def rotate_queries(self, q: Tensor, pos: Tensor, position: Position) -> Tensor:
        """(B,H,T,d), turned by the positions (B or 1, T)."""
        return position.rotate(q, pos)

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
    ) -> Tensor:
        """Read from `x` itself, or from `memory` if it is given.

        Args:
            x: (B,T,D).
            pos: (B or 1, T) positions of x.
            plain: as defined in `minitf.cache`.
            position: the position scheme of the stack.
            memory, memory_pos: source (B,S,D) and its positions (B or 1, S) for cross-attention.
            cache: keeps keys and values of this layer between calls.

        Returns:
            (B,T,D).
        """
        if memory is not None:
            return self._read_memory(self.queries(x), x, memory, memory_pos, cache)
        q, (k, v) = self.queries_and_entries(x)
        rotates = "rotate" in position.uses
        if rotates and (cache is None or not cache.raw_keys):
            k = position.rotate(k, pos)
        q_pos, k_pos, mask = pos, pos, self.mask
        if cache is not None:
            (k, v), q_pos, k_pos, plain = cache.update(k, v, pos=pos, plain=plain)
            mask = self._narrowed(cache, plain)
        if rotates:
            q = self.rotate_queries(q, q_pos, position)
            if cache is not None and cache.raw_keys:
                k = position.rotate(k, k_pos)
        if self.tap is not None:
            self._tell_keys(pos, q_pos, k_pos, cache)
        bias = position.bias(q_pos, k_pos) if "bias" in position.uses else None
        entries = self._mixed((k, v), k_pos, in_order=plain and (cache is None or cache.in_order))
        heads = self._attend(q, entries, mask=mask, q_pos=q_pos, k_pos=k_pos, plain=plain, bias=bias)
        return self.projection.out(heads, x)

    def _narrowed(self, cache: KVCache, plain: bool) -> Mask:
        """The mask, and what the cache keeps; the same whether a token comes alone or with others."""
        if cache.keeps is None or (plain and not self.reads_previous):
            return self.mask
        window, n_sink = cache.keeps
        # of the tokens that are kept, the oldest is only there for the key after it
        return self.mask & SlidingWindow(window - self.reads_previous, n_sink)

    def _tell_keys(self, pos: Tensor, q_pos: Tensor, k_pos: Tensor, cache: KVCache | None) -> None:
        """Tell a tap which token each key is."""
        if cache is not None and cache.raw_keys and self.tap.wants(*OVER_KEYS):
            # only a query that comes alone is renumbered
            k_pos = before_renumbering(k_pos, (pos - q_pos)[:, -1:], 0 if cache.keeps is None else cache.keeps[1])
        self.tap.keys(k_pos)

    def _mixed(self, entries: tuple[Tensor, ...], k_pos: Tensor, in_order: bool) -> tuple[Tensor, ...]:
        """Entries whose keys know the token before them, if the projection has it so; that one may stand anywhere."""
        if not self.reads_previous:
            return entries
        k, v = entries
        if in_order:
            return self.projection.mix_keys(k, k_pos), v
        pos, order = k_pos.sort(dim=-1, stable=True)
        index = order.expand(k.size(0), -1)[:, None, :, None].expand_as(k)
        return torch.empty_like(k).scatter(-2, index, self.projection.mix_keys(k.gather(-2, index), pos)), v

    def _read_memory(
        self, q: Tensor, x: Tensor, memory: Tensor, memory_pos: Tensor | None, cache: KVCache | None
    ) -> Tensor:
        """Cross-attention: every real token of the source is visible, its keys are made once."""
        plain = memory_pos is None
        if plain:
            memory_pos = torch.arange(memory.size(1), device=memory.device)[None]
        if cache is not None and cache.n_seen:
            entries, memory_pos = cache.read()
            plain = cache.plain
            held = (entries[0].size(0), cache.n_seen)
            if held != memory.shape[:2]:
                raise ConfigError(
                    f"the source cache holds {held[0]} rows of {held[1]} tokens, the source is {tuple(memory.shape)}: "
                    "make new caches or reset them"
                )
        else:
            entries = self.entries(memory)
            if cache is not None:
                entries, _, memory_pos, plain = cache.update(*entries, pos=memory_pos, plain=plain)
        if self.tap is not None:
            self.tap.keys(memory_pos)
        # a query of the target belongs to no document of the source; place 0 of document 0 reads all of it
        q_pos = memory_pos.new_zeros(1, q.size(2))
        entries = self._mixed(entries, memory_pos, in_order=plain)
        heads = self._attend(q, entries, mask=Full(), q_pos=q_pos, k_pos=memory_pos, plain=plain, bias=None)
        return self.projection.out(heads, x)

    def _attend(
        self,
        q: Tensor,
        entries: tuple[Tensor, ...],
        *,
        mask: Mask,
        q_pos: Tensor,
        k_pos: Tensor,
        plain: bool,
        bias: Tensor | None,
    ) -> Tensor:
        """What each head reads, (B,H,T,d_v)."""
        k, v = self.expand(entries)
        tap = self.tap
        if tap is not None:
            q, k, v = tap("q", q), tap("k", k), tap("v", v)
        dropout = self.dropout if self.training else 0.0
        where = {"mask": mask, "q_pos": q_pos, "k_pos": k_pos, "bias": bias}
        by_definition = {"score": self.score, "normalize": self.normalize, **where}
        if self.fast is None or (tap is not None and tap.edits("scores", "weights")):
            heads, _ = attend_reference(q, k, v, **by_definition, dropout=dropout, tap=tap)
        else:
            q_dot, k_dot, scale = self.score.dot_form(q, k)
            heads = self.fast(q_dot, k_dot, v, scale=scale, plain=plain, dropout=dropout, **where)
            if tap is not None and tap.wants("scores", "weights"):
                with torch.no_grad():
                    attend_reference(q, k, v, **by_definition, tap=tap)
        if tap is not None:
            heads = tap("heads", heads)
        return heads


def head_width(d_model: int, n_heads: int, n_kv_heads: int, d_head: int | None) -> int:
    """The width of a head, after checking that the sizes fit."""
    check_positive(n_heads=n_heads, n_kv_heads=n_kv_heads)
    if n_heads % n_kv_heads:
        raise ConfigError(
            f"n_heads ({n_heads}) must be a multiple of n_kv_heads ({n_kv_heads}): each serves as many query heads"
        )
    if d_head is not None:
        check_positive(d_head=d_head)
        return d_head
    if d_model % n_heads:
        raise ConfigError(f"d_model ({d_model}) must be a multiple of n_heads ({n_heads}), or set d_head")
    return d_model // n_heads
