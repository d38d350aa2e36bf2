"""Which queries count, and how their places compare with those of keys."""

from __future__ import annotations

import torch
from torch import Tensor

from minitf.analysis.attention_rows import SKIPPED
from minitf.positions import offset, segment


def counted(q_pos: Tensor, visible: Tensor, skip: int = SKIPPED) -> Tensor:
    """Queries that averages are taken over: bool (B,T).

    Not padding, nor a query that sees nothing; nor one of the first `skip` of its document that sees fewer keys than
    the query of its row that sees most. So a causal row loses its first queries, one of an encoder or of
    cross-attention none.

    Args:
        q_pos: int64 (B,T), -1 at padding.
        visible: bool (B,T,S).
        skip: see above.
    """
    real = q_pos >= 0
    n = visible.sum(-1).where(real, 0)
    begins = (offset(q_pos) < skip) & (n < n.amax(-1, keepdim=True))
    return real & (n > 0) & ~begins


def base_columns(q_pos: Tensor, k_pos: Tensor, crosses: bool) -> Tensor:
    """The column of each query that has offset 0: int64 (B,T); column j is at offset base - j.

    Args:
        q_pos: (B,T).
        k_pos: (B,S).
        crosses: whether the keys are those of another sequence: then token i of the one is compared with token i of
            the other. Tokens of a document stand side by side.
    """
    if crosses:
        return (k_pos >= 0).int().argmax(-1, keepdim=True) + offset(q_pos)
    return torch.arange(q_pos.size(1), device=q_pos.device).expand(q_pos.shape)


def first_of_document(q_pos: Tensor, k_pos: Tensor, crosses: bool, number: int = 0) -> Tensor:
    """Which key is token `number` of the query's document, or of the source: bool (B,T,S)."""
    there = (k_pos >= 0) & (offset(k_pos) == number)
    if crosses:
        return there[:, None].expand(-1, q_pos.size(1), -1)
    return there[:, None] & (segment(q_pos)[:, :, None] == segment(k_pos)[:, None])
