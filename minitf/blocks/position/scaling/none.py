"""No scaling."""

from __future__ import annotations

from torch import Tensor

from minitf.blocks.position.scaling import Scaling


class NoScaling(Scaling):
    """Leave the angles as they are. Source: Su et al. 2021 (RoFormer)."""

    def __call__(self, frequencies: Tensor, base: float) -> Tensor:
        return frequencies
