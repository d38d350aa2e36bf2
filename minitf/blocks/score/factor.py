"""A learned factor that several scores share."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from minitf.blocks.checks import check_above


class HeadFactor(nn.Module):
    """Multiply each head by a learned positive number; learning its logarithm keeps it positive.

    Args:
        n_heads: query heads H.
        initial: what every head starts with.
    """

    def __init__(self, n_heads: int, initial: float) -> None:
        super().__init__()
        check_above(0, "1.0 leaves the score as it is", **{"score initial": initial})
        self.initial = initial
        self.log = nn.Parameter(torch.empty(n_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Every head at `initial`."""
        nn.init.constant_(self.log, math.log(self.initial))

    def forward(self, x: Tensor) -> Tensor:
        """(B,H,T,S) or (B,H,T,d), in the same dtype."""
        return x * self.log.exp().to(x.dtype)[:, None, None]
