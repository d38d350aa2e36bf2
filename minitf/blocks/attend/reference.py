"""Attention by definition."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from minitf.blocks.attend import dense, repeat_heads
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
        k, v: (B,G,S,d), the values perhaps of another width; query head h reads K/V head h // (H/G).
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
    visible = dense(mask, q_pos, k_pos)
    scores = score.by_row(score(q, k), visible.sum(-1, keepdim=True))  # (B,H,T,S)
    if bias is not None:
        scores = scores + bias
    if tap is not None:
        scores = tap("scores", scores)
    weights = normalize(scores, visible)
    if tap is not None:
        weights = tap("weights", weights)
    dropped = F.dropout(weights, dropout) if dropout > 0 else weights
    return dropped.to(v.dtype) @ v, weights
