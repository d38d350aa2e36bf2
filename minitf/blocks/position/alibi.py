"""Linear biases."""

from __future__ import annotations

import torch
from torch import Tensor

from minitf.blocks.position import Position
from minitf.positions import offset


class ALiBi(Position):
    """Take slope * distance from each score, with another slope for each head; nothing is learned.

    Where a token reads later ones too, both directions count alike. Source: Press et al. 2022, section 3; head counts
    that are no power of two: the code of that paper.
    """

    uses = frozenset({"bias"})

    def __init__(self, *, d_model: int, d_head: int, n_heads: int, max_len: int, causal: bool) -> None:
        super().__init__(d_model=d_model, d_head=d_head, n_heads=n_heads, max_len=max_len, causal=causal)
        self.n_heads = n_heads

    def bias(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        distance = (offset(q_pos)[:, None, :, None] - offset(k_pos)[:, None, None, :]).abs()
        return -slopes(self.n_heads, distance.device)[:, None, None] * distance


def slopes(n_heads: int, device: torch.device | None = None) -> Tensor:
    """The slope of each head, float32 (H,).

    For a power of two p these are 2 ** (-8/p), 2 ** (-16/p), ... 2 ** -8; other counts take those of the next smaller
    power, then every second one of the next larger, from its first.
    """
    power = 1 << (n_heads.bit_length() - 1)
    head = torch.arange(n_heads, device=device, dtype=torch.float32)
    exponent = torch.where(head < power, 8 * (head + 1), 4 * (2 * (head - power) + 1)) / power
    return 2.0**-exponent
