"""The score that attention began with."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from minitf.blocks.checks import check_positive
from minitf.blocks.score import Score


class Additive(Score):
    """v.tanh(q W_q + k W_k), with W_q, W_k and v per head. Source: Bahdanau et al. 2015, section A.1.2.

    Every pair of a query and a key has d_head hidden values: (B,H,T,S,d) in all, d times as many as there are scores.
    With `chunk` only those of some queries exist at a time; the backward pass then computes them again.

    Args:
        chunk: number of queries at a time; null: all at once.
    """

    def __init__(self, *, d_head: int, n_heads: int, chunk: int | None) -> None:
        super().__init__(d_head=d_head, n_heads=n_heads)
        if chunk is not None:
            check_positive(chunk=chunk)
        self.chunk = chunk
        self.w_q = nn.Parameter(torch.empty(n_heads, d_head, d_head))
        self.w_k = nn.Parameter(torch.empty(n_heads, d_head, d_head))
        self.v = nn.Parameter(torch.empty(n_heads, d_head))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Unit variance inside the tanh for unit-variance q and k, and at most that of the scores."""
        d_head = self.v.size(-1)
        nn.init.normal_(self.w_q, std=(2 * d_head) ** -0.5)
        nn.init.normal_(self.w_k, std=(2 * d_head) ** -0.5)
        nn.init.normal_(self.v, std=d_head**-0.5)

    def activate(self, hidden: Tensor) -> Tensor:
        """What bends the hidden values: without it the score would be a sum of one of the query and one of the key."""
        return hidden.tanh()

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        q, k = q @ self.w_q, k @ self.w_k
        if self.chunk is None or self.chunk >= q.size(2):
            return self._fit(q, k, self.v)
        return torch.cat([self._again(part, k) for part in q.split(self.chunk, dim=2)], dim=2)

    def _again(self, q: Tensor, k: Tensor) -> Tensor:
        """Scores of some queries, nothing of which is kept for the backward pass."""
        if not torch.is_grad_enabled():
            return self._fit(q, k, self.v)
        return checkpoint(self._fit, q, k, self.v, use_reentrant=False, preserve_rng_state=False)

    def _fit(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """(B,H,T,d), (B,H,S,d), (H,d) -> (B,H,T,S)."""
        hidden = self.activate(q.unsqueeze(3) + k.unsqueeze(2))  # (B,H,T,S,d)
        return (hidden @ v[:, None, :, None]).squeeze(-1)
