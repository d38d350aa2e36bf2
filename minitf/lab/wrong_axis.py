"""Mistake: softmax over the queries."""

from __future__ import annotations

import torch
from torch import Tensor

from minitf.blocks.normalize import Normalize, hide


class WrongAxis(Normalize):
    """softmax(dim=-2): the queries compete for each key."""

    invariants = frozenset({"permutation"})

    def forward(self, scores: Tensor, visible: Tensor) -> Tensor:
        scores = hide(scores, visible)
        top = scores.detach().amax(-2, keepdim=True).clamp_min(torch.finfo(scores.dtype).min)
        e = (scores - top).exp()
        return e / e.sum(-2, keepdim=True).clamp_min(1.0)
