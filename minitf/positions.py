"""Positions: the one fact about tokens that masks, position schemes and caches read.

`pos` is an int64 tensor (B or 1, T). -1 means "no token here": padding, or an empty cache slot. Otherwise it packs two
numbers: which document of a packed row (`segment`) and which place in that document (`offset`).
"""

import torch
from torch import Tensor

SEGMENT = 2**32
NO_TOKEN = -1


def segment(pos: Tensor) -> Tensor:
    """Document number of each position, same shape as `pos`; -1 where there is no token."""
    return pos >> 32


def offset(pos: Tensor) -> Tensor:
    """Place inside the document, same shape as `pos`; 0 where there is no token."""
    return pos.clamp_min(0) & (SEGMENT - 1)


def before_renumbering(k_pos: Tensor, moved: Tensor, n_sink: int) -> Tensor:
    """Positions of keys as they were before a cache renumbered them.

    Args:
        k_pos: (B or 1, S) as the cache gives them.
        moved: (B or 1, 1) by how much it has moved the query, and all keys but the sinks.
        n_sink: first tokens of a document, whose positions stay.

    Returns:
        (B or 1, S); -1 where there is no token.
    """
    stays = (k_pos < 0) | (offset(k_pos) < n_sink)
    return torch.where(stays, k_pos, k_pos + moved)


def from_real(real: Tensor) -> Tensor:
    """Positions of padded rows.

    Args:
        real: bool (B, T), True where a token is real; padding may stand on either side.

    Returns:
        int64 (B, T): 0, 1, 2, ... over the real tokens of each row, -1 elsewhere.
    """
    return torch.where(real, real.long().cumsum(-1) - 1, NO_TOKEN)


def packed(lengths: list[int], total: int) -> Tensor:
    """Positions of one packed row.

    Args:
        lengths: tokens of each document, in order.
        total: length T of the row; places after the last document hold no token.

    Returns:
        int64 (T,): segment * 2**32 + offset, or -1.

    Raises:
        ValueError: the documents do not fit into the row.
    """
    if sum(lengths) > total:
        raise ValueError(f"documents of {lengths} tokens do not fit into a row of {total}")
    parts = [torch.arange(n) + i * SEGMENT for i, n in enumerate(lengths)]
    rest = torch.full((total - sum(lengths),), NO_TOKEN)
    return torch.cat([*parts, rest])
