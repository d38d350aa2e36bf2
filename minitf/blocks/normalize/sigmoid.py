"""Every key judged alone."""

from __future__ import annotations

import torch
from torch import Tensor

from minitf.blocks.normalize import Normalize, hide


class Sigmoid(Normalize):
    """sigmoid(score - log n) for n visible keys: no competition. Source: Ramapuram et al. 2024.

    The shift makes the weights of a row sum to about 1 while the scores are near 0.
    """

    invariants = frozenset({"permutation", "row_independence"})

    def forward(self, scores: Tensor, visible: Tensor) -> Tensor:
        scores = hide(scores, visible)
        n = (scores > -torch.inf).sum(-1, keepdim=True).clamp_min(1)
        return (scores - n.to(scores.dtype).log()).sigmoid()
