"""Many weights exactly zero."""

from __future__ import annotations

import torch
from torch import Tensor

from minitf.blocks.normalize import Normalize, hide
from minitf.blocks.normalize.support import below_top, support


class Sparsemax(Normalize):
    """The distribution nearest to the scores: max(score - t, 0). Source: Martins and Astudillo 2016, algorithm 1."""

    def forward(self, scores: Tensor, visible: Tensor) -> Tensor:
        scores = hide(scores, visible)
        x = below_top(scores)
        kept = support(x, power=1) & (scores > -torch.inf)
        n = kept.sum(-1, keepdim=True).clamp_min(1)
        # with the kept keys known, the threshold is a formula that autograd follows
        threshold = (x.where(kept, 0).sum(-1, keepdim=True) - 1) / n
        return (x - threshold).clamp_min(0).where(kept, 0)
