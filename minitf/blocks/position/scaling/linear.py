"""Position interpolation."""

from __future__ import annotations

from torch import Tensor

from minitf.blocks.position.scaling import Scaling, check_factor


class Linear(Scaling):
    """Divide every place by the factor, so that long texts fit into the trained range. Source: Chen et al. 2023.

    Args:
        factor: how many times longer texts get.
    """

    def __init__(self, factor: float) -> None:
        check_factor(factor)
        self.factor = float(factor)

    def __call__(self, frequencies: Tensor, base: float) -> Tensor:
        return frequencies / self.factor
