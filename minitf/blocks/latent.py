"""Attention whose keys and values are made from one narrow latent per token: the latent is what a cache keeps."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from minitf.blocks.attend.reference import attend_reference
from minitf.blocks.attention import MultiHeadAttention, head_width
from minitf.blocks.checks import check_positive
from minitf.blocks.mask import Mask
from minitf.blocks.norm.none import NoNorm
from minitf.blocks.normalize import Normalize
from minitf.blocks.position import Position
from minitf.blocks.projection import Projection, merge_heads, split_heads
from minitf.blocks.score import Score
from minitf.blocks.score.dot import Dot

_DOT = Dot(d_head=1, n_heads=1)  # the widths do not matter to it


class LatentAttention(MultiHeadAttention):
    """Multi-head latent attention with a decoupled rotary key. Source: DeepSeek-AI 2024 (DeepSeek-V2), section 2.1.

    A token keeps its latent c and one rotary key for all heads. Head h has the key [W_UK_h c, rotary key] and the value
    W_UV_h c (equations 9 to 19). For few queries over many keys, keys and values need not be made: q.(W_UK c) is
    (q W_UK).c, and a sum of W_UV c is W_UV times the sum of c. That is attention over the latents, with one key/value
    head; which of the two ways is taken follows from the sizes, see `absorbs`, and changes nothing but rounding.

    Args:
        d_model: width D of the residual stream.
        mask: which key a query may read.
        n_heads: heads H.
        d_latent: width c of the latent that keys and values are made from.
        d_query_latent: width of the latent that queries are made from; null: they are made from x itself.
        d_head: width of the part of queries and keys that is not rotated; null means d_model / n_heads.
        d_rotary: width r of the part that the position scheme rotates.
        d_value: width d_v of values; null means d_head.
        dropout: probability of dropping an attention weight while training.
        score, normalize: factories of the parts; the score sees queries and keys of width d = d_head + d_rotary.
        qk_norm: factory of the norm of the latents; behind them, it would stand between W_UK and the query.
        fast: a function like `attend_sdpa`, or null to compute by definition always.

    Raises:
        ConfigError: sizes that do not divide.
    """

    def __init__(
        self,
        *,
        d_model: int,
        mask: Mask,
        n_heads: int,
        d_latent: int,
        d_query_latent: int | None,
        d_head: int | None,
        d_rotary: int,
        d_value: int | None,
        dropout: float,
        score: Callable[..., Score],
        normalize: Callable[..., Normalize],
        qk_norm: Callable[[int], nn.Module],
        fast: Callable[..., Tensor] | None,
    ) -> None:
        d_head = head_width(d_model, n_heads, n_heads, d_head)
        check_positive(d_latent=d_latent, d_rotary=d_rotary)
        if d_query_latent is not None:
            check_positive(d_query_latent=d_query_latent)
        latent = {"d_latent": d_latent, "d_query_latent": d_query_latent, "d_rotary": d_rotary, "norm": qk_norm}
        super().__init__(
            d_model=d_model,
            mask=mask,
            n_heads=n_heads,
            n_kv_heads=n_heads,
            d_head=d_head + d_rotary,
            d_value=d_head if d_value is None else d_value,
            dropout=dropout,
            score=score,
            normalize=normalize,
            projection=functools.partial(LatentProjection, **latent),
            qk_norm=NoNorm,
            fast=fast,
        )
        self.d_rotary = d_rotary

    def entries(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """What a cache keeps of `source`: rotary key (B,1,S,r), to be rotated, and latent (B,1,S,c)."""
        return self.projection.rotary_key(source), self.projection.latent(source)

    def queries_and_entries(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        return self.queries(x), self.entries(x)

    def expand(self, entries: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Keys (B,H,S,d) and values (B,H,S,d_v) from what a cache keeps."""
        return self.projection.expand(*entries)

    def rotate_queries(self, q: Tensor, pos: Tensor, position: Position) -> Tensor:
        """(B,H,T,d), the last r features turned by the positions (B or 1, T)."""
        fixed, rotary = q.split([q.size(-1) - self.d_rotary, self.d_rotary], -1)
        return torch.cat([fixed, position.rotate(rotary, pos)], -1)

    def absorbs(self, n_queries: int, n_keys: int) -> bool:
        """Whether reading the latents themselves takes fewer multiplications than making keys and values of them.

        Never for a row that reads itself, as in training. With d_latent = 4 d_head and a cache of some length it does
        for up to about d_head queries: for a step of generation, not for a large piece of a prompt. As measured on a
        CPU (4 to 16 heads, d_head 32 and 64, 128 and 1024 keys), the times change places near the same number; one
        query is served 3 to 14 times faster.
        """
        p = self.projection
        if n_queries >= n_keys or not self.score.keeps_keys:
            return False
        made = p.d_latent * (p.d_fixed + p.d_value)  # a key and a value of one head, or a query and an output
        pairs = n_queries * n_keys
        absorbed = n_queries * made + pairs * 2 * (p.d_latent + p.d_rotary)
        return absorbed < n_keys * made + pairs * (p.d_head + p.d_value)

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
        where = {"mask": mask, "q_pos": q_pos, "k_pos": k_pos, "bias": bias}
        tap = self.tap
        if not self.absorbs(q.size(2), k_pos.size(1)) or (
            tap is not None and tap.edits("q", "k", "v", "scores", "weights")
        ):
            return super()._attend(q, entries, plain=plain, **where)
        heads = self._attend_latents(q, *entries, plain=plain, **where)
        if tap is not None:
            self._show(q, entries, **where)
            heads = tap("heads", heads)
        return heads

    def _attend_latents(self, q: Tensor, rotary: Tensor, latent: Tensor, *, plain: bool, **where: object) -> Tensor:
        """What each head reads, (B,H,T,d_v), without keys and values."""
        p, dropout = self.projection, self.dropout if self.training else 0.0
        held = torch.cat([latent, rotary], -1)  # (B,1,S,c+r)
        q, held, scale = self.score.dot_form(q, held)
        q = p.into_latent(q)  # (B,H,T,c+r)
        # the values are the latents alone; as wide as the keys, they are served by torch's fused attention
        if self.fast is None:
            parts = {"score": _DOT, "normalize": self.normalize}
            heads, _ = attend_reference(q * scale, held, held, **parts, **where, dropout=dropout)
        else:
            heads = self.fast(q, held, held, scale=scale, plain=plain, **where, dropout=dropout)
        return p.from_latent(heads[..., : p.d_latent])

    @torch.no_grad()
    def _show(self, q: Tensor, entries: tuple[Tensor, ...], **where: object) -> None:
        """Tell a tap what would be there if keys and values were made."""
        tap = self.tap
        if not tap.wants("q", "k", "v", "scores", "weights"):
            return
        k, v = self.expand(entries)
        q, k, v = tap("q", q), tap("k", k), tap("v", v)
        if tap.wants("scores", "weights"):
            attend_reference(q, k, v, score=self.score, normalize=self.normalize, **where, tap=tap)


class LatentProjection(Projection):
    """The matrices of latent attention. Source: DeepSeek-AI 2024 (DeepSeek-V2), equations 9 to 15.

    In the letters of the paper: w_q_down is W_DQ, w_q both W_UQ and W_QR, w_kv_down W_DKV, w_k_rotary W_KR, w_k W_UK,
    w_v W_UV and w_o W_O. The keys of a source have no meaning before their rotary part is rotated, so there is `expand`
    instead of `k` and `v`.

    Args:
        d_latent, d_query_latent, d_rotary: as for `LatentAttention`.
        d_head: width of queries and keys, the rotary part included.
        norm: factory of the norm behind both ways down; RMSNorm in the code of the authors.
    """

    def __init__(
        self,
        *,
        d_model: int,
        n_heads: int,
        n_kv_heads: int,
        d_head: int,
        d_value: int,
        d_latent: int,
        d_query_latent: int | None,
        d_rotary: int,
        norm: Callable[[int], nn.Module],
    ) -> None:
        super().__init__(d_model=d_model, n_heads=n_heads, n_kv_heads=n_kv_heads, d_head=d_head, d_value=d_value)
        self.d_latent, self.d_query_latent, self.d_rotary = d_latent, d_query_latent, d_rotary
        self.d_fixed = d_head - d_rotary
        for name, (n_in, n_out) in self.shapes().items():
            self.add_module(name, nn.Linear(n_in, n_out, bias=False))
        self.q_norm = None if d_query_latent is None else norm(d_query_latent)
        self.kv_norm = norm(d_latent)

    def shapes(self) -> dict[str, tuple[int, int]]:
        """Name -> (inputs, outputs) of every matrix."""
        queries = self.d_model if self.d_query_latent is None else self.d_query_latent
        down = {} if self.d_query_latent is None else {"w_q_down": (self.d_model, queries)}
        return down | {
            "w_q": (queries, self.n_heads * self.d_head),
            "w_kv_down": (self.d_model, self.d_latent),
            "w_k_rotary": (self.d_model, self.d_rotary),
            "w_k": (self.d_latent, self.n_heads * self.d_fixed),
            "w_v": (self.d_latent, self.n_heads * self.d_value),
            "w_o": (self.n_heads * self.d_value, self.d_model),
        }

    @property
    def residual_output(self) -> nn.Linear:
        return self.w_o

    def q(self, x: Tensor) -> Tensor:
        """(B,T,D) -> (B,H,T,d), the rotary part last."""
        return split_heads(self.w_q(x if self.q_norm is None else self.q_norm(self.w_q_down(x))), self.n_heads)

    def latent(self, source: Tensor) -> Tensor:
        """(B,S,D) -> (B,1,S,c)."""
        return self.kv_norm(self.w_kv_down(source))[:, None]

    def rotary_key(self, source: Tensor) -> Tensor:
        """(B,S,D) -> (B,1,S,r)."""
        return self.w_k_rotary(source)[:, None]

    def expand(self, rotary: Tensor, latent: Tensor) -> tuple[Tensor, Tensor]:
        """(B,1,S,r), (B,1,S,c) -> keys (B,H,S,d), values (B,H,S,d_v)."""
        latent = latent.squeeze(1)
        fixed, v = (split_heads(w(latent), self.n_heads) for w in (self.w_k, self.w_v))
        return torch.cat([fixed, rotary.expand(-1, self.n_heads, -1, -1)], -1), v

    def into_latent(self, q: Tensor) -> Tensor:
        """Queries (B,H,T,d) for keys -> queries (B,H,T,c+r) for [latent, rotary key]."""
        fixed, rotary = q.split([self.d_fixed, self.d_rotary], -1)
        # not @, which would copy the matrix for each row of the batch
        return torch.cat([torch.einsum("bhtd,hdc->bhtc", fixed, self._by_head(self.w_k)), rotary], -1)

    def from_latent(self, read: Tensor) -> Tensor:
        """Weighted sums of latents (B,H,T,c) -> of values (B,H,T,d_v)."""
        return torch.einsum("bhtc,hdc->bhtd", read, self._by_head(self.w_v))

    def out(self, heads: Tensor, x: Tensor) -> Tensor:
        return self.w_o(merge_heads(heads))

    def by_head(self) -> dict[str, Tensor]:
        into = {name: self._by_head(getattr(self, name)) for name in ("w_q", "w_k", "w_v")}
        return into | {"w_o": self.w_o.weight.unflatten(1, (self.n_heads, -1)).transpose(0, 1)}

    def _by_head(self, linear: nn.Linear) -> Tensor:
        """A view (H, outputs of a head, inputs) of the weight."""
        return linear.weight.unflatten(0, (self.n_heads, -1))
