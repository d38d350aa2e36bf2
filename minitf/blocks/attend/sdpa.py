"""Attention by torch's fused function."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from minitf.blocks.attend import dense
from minitf.blocks.mask import Mask


def attend_sdpa(
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
    """torch's fused attention: softmax of scaled dot products, without weights in memory.

    Arguments and result as for `attend_reference`; `plain`, see `minitf.cache`, allows to leave the mask tensor out. On
    a CPU, bfloat16 that needs a gradient is computed in float32 and rounded afterwards: torch's backward pass is then
    up to 3 times faster. Values that are narrower than keys are filled up there, because torch fuses only what is
    equally wide.
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
    if n_queries == 1 and q.size(1) != k.size(1):
        return _one_token(q, k, v, bias, scale, dropout)
    width = v.size(-1)
    if q.device.type == "cpu" and n_queries > 1 and width < q.size(-1):
        v = F.pad(v, (0, q.size(-1) - width))
    out = F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=bias,
        dropout_p=dropout,
        is_causal=causal,
        scale=scale,
        enable_gqa=q.size(1) != k.size(1),
    )
    return out if width == out.size(-1) else out[..., :width]


def _one_token(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, dropout: float) -> Tensor:
    """One query per head over shared keys: the heads of a group are queries of one head, so keys are read once."""
    b, n_heads, _, d = q.shape
    n_kv_heads = k.size(1)
    if bias is not None and bias.size(1) > 1:
        bias = bias.reshape(bias.size(0), n_kv_heads, n_heads // n_kv_heads, -1)
    grouped = q.reshape(b, n_kv_heads, n_heads // n_kv_heads, d)
    out = F.scaled_dot_product_attention(grouped, k, v, attn_mask=bias, dropout_p=dropout, scale=scale)
    return out.reshape(b, n_heads, 1, -1)
