"""The usual normaliser."""

import torch
from torch import Tensor

from minitf.blocks.normalize import Normalize, hide


class Softmax(Normalize):
    """exp(score) / sum over the visible keys. Source: Vaswani et al. 2017, equation 1."""

    is_softmax = True

    def forward(self, scores: Tensor, visible: Tensor) -> Tensor:
        scores = hide(scores, visible)
        # a row without any visible key has the maximum -inf, and -inf - -inf would be nan
        top = scores.detach().amax(-1, keepdim=True).clamp_min(torch.finfo(scores.dtype).min)
        e = (scores - top).exp()
        # the largest visible score adds 1 to the sum: only a row without any has less
        return e / e.sum(-1, keepdim=True).clamp_min(1.0)
