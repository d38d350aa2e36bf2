"""A place to put what is not needed."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from minitf.blocks.normalize import Normalize, hide


class Sink(Normalize):
    """exp(score) / (exp(b) + sum), b learned per head: one more key of score b. Source: OpenAI 2025 (gpt-oss).

    The value of that key is 0. It starts as the off-by-one softmax, b = 0.
    """

    invariants = frozenset({"permutation", "row_independence"})

    def __init__(self, *, n_heads: int) -> None:
        super().__init__(n_heads=n_heads)
        self.logit = nn.Parameter(torch.empty(n_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """b = 0."""
        nn.init.zeros_(self.logit)

    def forward(self, scores: Tensor, visible: Tensor) -> Tensor:
        scores = hide(scores, visible)
        sink = self.logit.to(scores.dtype)[:, None, None]
        top = scores.detach().amax(-1, keepdim=True).maximum(sink.detach())
        e = (scores - top).exp()
        return e / (e.sum(-1, keepdim=True) + (sink - top).exp())
