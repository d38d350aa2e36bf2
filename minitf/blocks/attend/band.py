"""Attention along a band: only what a window can show is computed."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from minitf.blocks.attend.sdpa import attend_sdpa
from minitf.blocks.mask import Mask

_ROWS, _ROWS_BACKWARD = 32, 64  # queries in a piece, without and with a gradient: measured best for a window of 128
_ALIGN = 32  # keys of a piece are a multiple of this
_KEPT, _KEPT_NUMBERS = 8, 2**23  # so many biases are kept for each mask, if none is longer than that
_kept: WeakKeyDictionary[Mask, dict[tuple, Tensor]] = WeakKeyDictionary()


def attend_band(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    mask: Mask,
    q_pos: Tensor,
    k_pos: Tensor,
    plain: bool,
    bias: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """torch's fused attention on pieces of the row, where a mask of bounded `reach` hides the rest; else `attend_sdpa`.

    Queries are cut into pieces; the keys of a piece are those its first query can look back to and its last one can
    look ahead to, an overlapping view. The cost grows with T times the width of the band, not with T squared.
    Arguments and result as for `attend_sdpa`. A mask must not be changed once it was used: pieces of it are kept.

    Source: Beltagy et al. 2020 (Longformer), overlapping chunks.
    """
    if not pays(q, k, mask, plain, bias):
        where = {"mask": mask, "q_pos": q_pos, "k_pos": k_pos, "plain": plain, "bias": bias}
        return attend_sdpa(q, k, v, scale=scale, **where, dropout=dropout)
    rows = _ROWS_BACKWARD if torch.is_grad_enabled() else _ROWS
    (n_batch, n_heads, length, _), n_kv = q.shape, k.size(1)
    hidden = _bias(mask, length, rows, n_heads // n_kv, q)  # (n, h * rows, L), h query heads read one K/V head
    n, width = hidden.size(0), hidden.size(2)
    ahead = mask.reach[1]
    tail = n * rows - length
    k, v = (F.pad(t, (0, 0, width - rows - ahead, tail + ahead)) for t in (k, v))
    k, v = (t.contiguous().unfold(2, width, rows).mT.flatten(0, 1) for t in (k, v))  # (B * G, n, L, d)
    q = F.pad(q, (0, 0, 0, tail)) if tail else q
    q = q.reshape(n_batch, n_kv, -1, n, rows, q.size(-1)).transpose(2, 3).reshape(n_batch * n_kv, n, -1, q.size(-1))
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=hidden.expand(len(q), -1, -1, -1), dropout_p=dropout, scale=scale
    )
    out = out.reshape(n_batch, n_kv, n, -1, rows, out.size(-1)).transpose(2, 3)
    return out.reshape(n_batch, n_heads, n * rows, -1)[:, :, :length]


def pays(q: Tensor, k: Tensor, mask: Mask, plain: bool, bias: Tensor | None) -> bool:
    """Whether the band is possible, and narrow enough to be faster than the whole square."""
    if not plain or bias is not None or q.size(2) != k.size(2) or None in mask.reach:
        return False
    if torch.compiler.is_compiling() or (q.dtype == torch.bfloat16 and torch.is_grad_enabled()):
        return False  # what is kept between calls breaks a graph; bfloat16 with a gradient is widened by attend_sdpa
    return q.size(2) >= 2 * (sum(mask.reach) + _ROWS_BACKWARD)


def _bias(mask: Mask, length: int, rows: int, n_repeat: int, q: Tensor) -> Tensor:
    """0 where a query of a piece may read a key of it, else -inf; (n, n_repeat * rows, L)."""
    kept = _kept.setdefault(mask, {})
    key = (length, rows, n_repeat, q.dtype, q.device)
    if key in kept:
        return kept[key]
    with torch.inference_mode(False), torch.no_grad():  # a later pass may need a gradient
        bias = _make_bias(mask, length, rows, q.device).to(q.dtype).repeat(1, n_repeat, 1)
    if bias.numel() <= _KEPT_NUMBERS:
        while len(kept) >= _KEPT:
            del kept[next(iter(kept))]
        kept[key] = bias
    return bias


def _make_bias(mask: Mask, length: int, rows: int, device: torch.device) -> Tensor:
    n = -(-length // rows)
    back, ahead = mask.reach
    width = -(-(rows + back + ahead) // _ALIGN) * _ALIGN
    q_place = torch.arange(n * rows, device=device).view(n, rows, 1)
    first = torch.arange(n, device=device)[:, None, None] * rows - (width - rows - ahead)
    k_place = first + torch.arange(width, device=device)
    exists = (k_place >= 0) & (k_place < length)
    visible = exists & mask.visible(q_place, k_place.clamp_min(0))
    return torch.zeros(visible.shape, device=device).masked_fill_(~visible, float("-inf"))
