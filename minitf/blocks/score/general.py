"""The bilinear score."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from minitf.blocks.score import Score


class General(Score):
    """q W k, a matrix W per head. Source: Luong et al. 2015, section 3.1 (general).

    W starts as the identity / sqrt(d_head): the scaled dot product.
    """

    is_dot = True
    keeps_keys = True

    def __init__(self, *, d_head: int, n_heads: int) -> None:
        super().__init__(d_head=d_head, n_heads=n_heads)
        self.w = nn.Parameter(torch.empty(n_heads, d_head, d_head))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The scaled dot product."""
        d_head = self.w.size(-1)
        with torch.no_grad():
            self.w.copy_(torch.eye(d_head) * d_head**-0.5)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return (q @ self.w) @ k.transpose(-2, -1)

    def dot_form(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        return q @ self.w, k, 1.0
