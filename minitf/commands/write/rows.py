"""Rows of ids that go into one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def padded(rows: Sequence[Sequence[int]], left: bool) -> tuple[Tensor, Tensor | None]:
    """Rows of ids (B,T), and positions that are -1 at padding; None where nothing is padded.

    Args:
        rows: of any lengths above 0.
        left: on which side shorter ones are padded.
    """
    import torch

    width = max(map(len, rows))
    ids, pos = torch.zeros(len(rows), width, dtype=torch.long), torch.full((len(rows), width), -1)
    for i, row in enumerate(rows):
        begin = width - len(row) if left else 0
        ids[i, begin : begin + len(row)] = torch.tensor(row)
        pos[i, begin : begin + len(row)] = torch.arange(len(row))
    return ids, None if min(map(len, rows)) == width else pos
