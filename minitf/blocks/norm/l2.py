"""Unit length."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from minitf.blocks.checks import check_above


class L2Norm(nn.Module):
    """Divide by the length; no gain. Source: Henry et al. 2020 (query-key normalisation).

    Args:
        d_model: width of the vectors.
        eps: added to the squared length, so that a zero vector stays zero.
    """

    def __init__(self, d_model: int, *, eps: float) -> None:
        super().__init__()
        check_above(0, "1e-6 is usual", **{"norm eps": eps})
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return unit(x, self.eps)


def unit(x: Tensor, eps: float) -> Tensor:
    """Vectors of length 1 in the last dimension, in the same dtype; `eps` is added to the squared length."""
    wide = x if x.dtype == torch.float64 else x.float()  # squares of half precision overflow or vanish
    return (wide * (wide.square().sum(-1, keepdim=True) + eps).rsqrt()).to(x.dtype)
