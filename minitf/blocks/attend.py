"""Two ways to compute attention from queries, keys and values.

`attend_reference` is plain matrix algebra and the definition; `attend_sdpa` is the fast way and must equal it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from minitf.blocks.mask import Mask
from minitf.blocks.normalize import Normalize
from minitf.blocks.score import Score


def attend_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    score: Score,
    normalize: Normalize,
    mask: Mask,
    q_pos: Tensor,
    k_pos: Tensor,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    tap: Callable[[str, Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Scores, mask, normaliser and weighted sum, one after another.

    Args:
        q: (B,H,T,d).
        k, v: (B,G,S,d); query head h reads K/V head h // (H/G).
        score, normalize, mask: the three choices that define this attention.
        q_pos, k_pos: positions (B or 1, T) and (B or 1, S).
        bias: None or (B or 1, H, T, S), added to the scores.
        dropout: probability of dropping a weight.
        tap: sees, and may change, "scores" and "weights" (before dropout).

    Returns:
        out (B,H,T,d) and weights (B,H,T,S) in float32, before dropout.

    Source: Vaswani et al. 2017, equation 1; grouped heads: Ainslie et al. 2023.
    """
    k, v = repeat_heads(k, q.size(1)), repeat_heads(v, q.size(1))
    scores = score(q, k)  # (B,H,T,S)
    if bias is not None:
        scores = scores + bias
    if tap is not None:
        scores = tap("scores", scores)
    weights = normalize(scores, dense(mask, q_pos, k_pos))
    if tap is not None:
        weights = tap("weights", weights)
    dropped = F.dropout(weights, dropout) if dropout > 0 else weights
    return dropped.to(v.dtype) @ v, weights


def attend_sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float | Tensor,
    mask: Mask,
    q_pos: Tensor,
    k_pos: Tensor,
    plain: bool,
    bias: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """torch's fused attention: softmax of scaled dot products, without weights in memory.

    Arguments and result as for `attend_reference`; `plain` allows to leave the mask tensor out. On a CPU, bfloat16 that
    needs a gradient is computed in float32 and rounded afterwards: torch's backward pass is then up to 3 times faster.
    """
    if q.dtype == torch.bfloat16 and q.device.type == "cpu" and torch.is_grad_enabled():
        wide = {"scale": scale, "mask": mask, "q_pos": q_pos, "k_pos": k_pos, "plain": plain, "bias": bias}
        with torch.autocast("cpu", enabled=False):
            return attend_sdpa(q.float(), k.float(), v.float(), **wide, dropout=dropout).to(q.dtype)
    n_queries, n_keys = q.size(2), k.size(2)
    causal = False
    if plain and mask.plain_causal and bias is None and n_queries == n_keys > 1:
        causal = True  # by a branch: a comparison of sizes is no bool under torch.compile
    unmasked = plain and (mask.plain_full or (mask.plain_causal and n_queries == 1))
    bias = None if bias is None else bias.to(q.dtype)
    if not (causal or unmasked):
        visible = dense(mask, q_pos, k_pos)
        bias = visible if bias is None else bias.masked_fill(~visible, float("-inf"))
    return F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=bias,
        dropout_p=dropout,
        is_causal=causal,
        scale=scale,
        enable_gqa=q.size(1) != k.size(1),
    )


def dense(mask: Mask, q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """The mask as a bool tensor (B or 1, 1, T, S), True where the key may be read."""
    return mask.visible(q_pos[:, None, :, None], k_pos[:, None, None, :])


def repeat_heads(kv: Tensor, n_heads: int) -> Tensor:
    """(B,G,S,d) -> (B,H,S,d), each K/V head repeated in place: 0 0 1 1, not 0 1 0 1."""
    n_kv_heads = kv.size(1)
    return kv if n_kv_heads == n_heads else kv.repeat_interleave(n_heads // n_kv_heads, dim=1)
