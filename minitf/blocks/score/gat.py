"""The score of graph attention networks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from minitf.blocks.checks import check_above
from minitf.blocks.score import Score


class GAT(Score):
    """LeakyReLU(a_q.q + a_k.k), with a_q and a_k per head: every query has the same best key.

    Nothing of a query meets anything of a key before the two numbers are added, and LeakyReLU keeps their order: only
    how sharply the best key is preferred depends on the query.

    Args:
        slope: of LeakyReLU below zero; the paper takes 0.2.

    Source: Velickovic et al. 2018 (GAT), equation 3; there q and k are the same projection of two nodes.
    """

    def __init__(self, *, d_head: int, n_heads: int, slope: float) -> None:
        super().__init__(d_head=d_head, n_heads=n_heads)
        check_above(0, "0.2 is usual", **{"score slope": slope})
        self.slope = slope
        self.a_q = nn.Parameter(torch.empty(n_heads, d_head))
        self.a_k = nn.Parameter(torch.empty(n_heads, d_head))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Unit variance of both numbers for unit-variance q and k."""
        for a in (self.a_q, self.a_k):
            nn.init.normal_(a, std=a.size(-1) ** -0.5)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        from_q, from_k = q @ self.a_q[..., None], k @ self.a_k[..., None]  # (B,H,T,1), (B,H,S,1)
        return leaky_relu(from_q + from_k.transpose(-2, -1), self.slope)
