"""Scalings of rotary positions: how a model reads texts longer than those it was trained on.

None depends on the length of the text at hand: keys are rotated once, when they are cached.
"""

from __future__ import annotations

from torch import Tensor

from minitf.blocks.checks import check_above
from minitf.errors import ConfigError


class Scaling:
    """The interface: slower angles, and perhaps larger scores.

    Attributes:
        magnitude: factor of every rotated feature of q and of k.
    """

    magnitude: float = 1.0

    def __call__(self, frequencies: Tensor, base: float) -> Tensor:
        """The angles per place that take the place of others.

        Args:
            frequencies: float32 (d/2,), base ** (-2i/d).
            base: the base they were made from.

        Returns:
            float32 (d/2,).
        """
        raise NotImplementedError


def check_factor(factor: float) -> None:
    """Raise ConfigError unless the factor, by which texts grow, is a finite number of at least 1."""
    check_above(0, "2 or 4 is usual", **{"rope scaling factor": factor})
    if factor < 1:
        raise ConfigError(f"rope scaling factor must be at least 1, got {factor!r}: it says how much longer texts get")
