"""Nearness instead of the product."""

from __future__ import annotations

import torch
from torch import Tensor

from minitf.blocks.score import Score


class L2(Score):
    """-|q - k|^2 / sqrt(d_head): the nearest key fits best. Source: Kim et al. 2021 (L2 self-attention).

    There queries and keys share one projection, which bounds how fast the output can change; here that is a choice of
    its own.
    """

    def __init__(self, *, d_head: int, n_heads: int) -> None:
        super().__init__(d_head=d_head, n_heads=n_heads)
        self.scale = d_head**-0.5

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        # in at least float32: the three terms are large and nearly cancel
        q, k = (t if t.dtype == torch.float64 else t.float() for t in (q, k))
        with torch.autocast(q.device.type, enabled=False):
            lengths = q.square().sum(-1)[..., :, None] + k.square().sum(-1)[..., None, :]
            return (2 * q @ k.transpose(-2, -1) - lengths) * self.scale
