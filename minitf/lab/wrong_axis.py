"""Mistake: softmax over the queries."""

from __future__ import annotations

import torch
from torch import Tensor

from minitf.blocks.normalize import Normalize, hide


class WrongAxis(Normalize):
    """softmax(dim=-2): the queries compete for each key.

    Written by mistake: dim=1 or dim=-2 where the scores got another axis in front, or were transposed.

    Symptom: a loss that falls, but unevenly from seed to seed (0.23, 0.36, 1.58 in place of 0.02), because later
    queries act on the weights of earlier ones and so tell the answer; written text is wrong, because a
    query that comes last finds every key without a rival.

    Named by: the weights of each key sum to 1, those of a query do not; and another query changes them.
    """

    invariants = frozenset({"permutation"})

    def forward(self, scores: Tensor, visible: Tensor) -> Tensor:
        scores = hide(scores, visible)
        top = scores.detach().amax(-2, keepdim=True).clamp_min(torch.finfo(scores.dtype).min)
        e = (scores - top).exp()
        return e / e.sum(-2, keepdim=True).clamp_min(1.0)
