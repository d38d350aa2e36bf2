"""The plain product."""

from __future__ import annotations

from torch import Tensor

from minitf.blocks.score import Score


class Dot(Score):
    """q.k, without a scale. Source: Luong et al. 2015, section 3.1 (dot); Raffel et al. 2020 (T5)."""

    is_dot = True
    keeps_keys = True

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.transpose(-2, -1)

    def dot_form(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        return q, k, 1.0
