"""Averages that can be taken piece by piece."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Average:
    """A sum and the number of what was summed; two of them add up to that of both pieces.

    Args:
        total: float64, any shape, such as (H,).
        n: how many there were, float64, broadcastable to `total`.
    """

    total: Tensor
    n: Tensor

    def __add__(self, other: Average) -> Average:
        return Average(self.total + other.total, self.n + other.n)

    @property
    def value(self) -> Tensor:
        """total / n; NaN where there was nothing."""
        return self.total / self.n.where(self.n > 0, torch.nan)


def over_rows(values: Tensor, rows: Tensor) -> Average:
    """The average of (B,H,T) over the rows (B,T) that are True: of shape (H,)."""
    values = values.double().masked_fill(~rows[:, None], 0.0)
    return Average(values.sum((0, 2)), rows.sum().double())
