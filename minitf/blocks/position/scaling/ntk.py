"""NTK-aware scaling with a fixed factor."""

from __future__ import annotations

import torch
from torch import Tensor

from minitf.blocks.position.scaling import Scaling, check_factor


class NTK(Scaling):
    """A larger base: the slowest angle is divided by the factor, the fastest stays as it is.

    The base becomes base * factor ** (d / (d - 2)). Source: Peng et al. 2023 (YaRN), section 3.1, after bloc97 2023.

    Args:
        factor: how many times longer texts get.
    """

    def __init__(self, factor: float) -> None:
        check_factor(factor)
        self.factor = float(factor)

    def __call__(self, frequencies: Tensor, base: float) -> Tensor:
        n = len(frequencies)
        # (base * factor ** (d / (d - 2))) ** (-2i / d) = base ** (-2i / d) * factor ** (-i / (d / 2 - 1))
        share = torch.arange(n, device=frequencies.device, dtype=frequencies.dtype) / max(n - 1, 1)
        return frequencies * self.factor**-share
