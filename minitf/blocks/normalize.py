"""Normalisers: how a row of scores becomes a row of weights."""

import torch
from torch import Tensor, nn


class Normalize(nn.Module):
    """The interface of every normaliser.

    Attributes:
        is_softmax: True if this is the plain softmax, which the fast path computes.
    """

    is_softmax: bool = False

    def forward(self, scores: Tensor, visible: Tensor) -> Tensor:
        """Weights from scores.

        Args:
            scores: (B,H,T,S), any float dtype.
            visible: bool, broadcastable to `scores`; True where the key may be read.

        Returns:
            (B,H,T,S) in float32 (float64 stays): exactly 0 where hidden, and a row that may read nothing is all 0.

        Raises:
            TypeError: `visible` is not boolean; a float mask would be read with another meaning.
        """
        raise NotImplementedError


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


def hide(scores: Tensor, visible: Tensor) -> Tensor:
    """Scores in at least float32 with -inf where hidden."""
    if visible.dtype != torch.bool:
        raise TypeError(f"a mask must be boolean with True = may be read, got {visible.dtype}")
    wide = scores if scores.dtype == torch.float64 else scores.float()
    return wide.masked_fill(~visible, float("-inf"))
