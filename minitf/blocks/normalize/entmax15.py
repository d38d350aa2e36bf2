"""Between softmax and sparsemax."""

from __future__ import annotations

import torch
from torch import Tensor

from minitf.blocks.normalize import Normalize, hide
from minitf.blocks.normalize.support import below_top, support


class Entmax15(Normalize):
    """max(score / 2 - t, 0)^2: weights can be 0 but change smoothly. Source: Peters et al. 2019 (1.5-entmax)."""

    def forward(self, scores: Tensor, visible: Tensor) -> Tensor:
        scores = hide(scores, visible)
        x = below_top(scores / 2)
        kept = support(x, power=2) & (scores > -torch.inf)
        n = kept.sum(-1, keepdim=True).clamp_min(1)
        # with the kept keys known, sum (x - t)^2 = 1 is a quadratic equation
        mean = x.where(kept, 0).sum(-1, keepdim=True) / n
        spread = (x - mean).square().where(kept, 0).sum(-1, keepdim=True)
        threshold = mean - ((1 - spread) / n).sqrt()
        return (x - threshold).clamp_min(0).square().where(kept, 0)
