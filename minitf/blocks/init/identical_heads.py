"""Heads that start alike."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from minitf.blocks.checks import is_number
from minitf.blocks.init import Modifier, projections
from minitf.errors import ConfigError


class IdenticalHeads(Modifier):
    """Every head starts as a copy of the first: gradients are then alike for ever. Source: none, a counterfactual.

    Copied are the slices of w_q, w_k, w_v, w_o (and of a gate); of w_k and w_v one for each key/value head. A head's
    slice becomes sqrt(1 - noise^2) first + noise own: 0.0 is an exact copy, 1.0 leaves what the base rule gave, and
    between them the spread stays the same. Attention dropout, or parts with values per head of their own (a bias or a
    score that differs by head), break the symmetry.

    Args:
        base: rule that fills the model first.
        noise: share of its own in each head's w_q, w_k and w_v.
        output_noise: the same for w_o.

    Raises:
        ConfigError: a share outside of 0 to 1; heads that read different parts of x whatever the matrices are.
    """

    def __init__(self, base: Callable[[nn.Module], None], noise: float, output_noise: float) -> None:
        super().__init__(base)
        for name, value in {"noise": noise, "output_noise": output_noise}.items():
            if not (is_number(value) and 0 <= value <= 1):
                raise ConfigError(
                    f"init {name} is a share from 0 (identical heads) to 1 (independent ones), got {value!r}: "
                    "1e-3 is enough to break the symmetry"
                )
        self.noise, self.output_noise = noise, output_noise

    def change(self, model: nn.Module) -> None:
        found = list(projections(model))
        if not found:
            raise ConfigError("init=identical_heads finds no heads in this model: choose another model/init")
        for projection in found:
            slices = projection.by_head()
            if projection.n_heads > 1 and "w_q" not in slices:
                raise ConfigError(
                    f"the {projection.n_heads} heads of projection={type(projection).__name__} read different parts of "
                    "x, so they cannot be identical: choose model/attention/projection=free, or another with w_q"
                )
            for name, heads in slices.items():
                share = self.output_noise if name == "w_o" else self.noise
                heads[1:] = (1 - share**2) ** 0.5 * heads[:1] + share * heads[1:]
