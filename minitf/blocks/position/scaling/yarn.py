"""YaRN."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minitf.blocks.checks import check_above, check_positive
from minitf.blocks.position.scaling import Scaling, check_factor
from minitf.errors import ConfigError


class YaRN(Scaling):
    """Divide slow angles by the factor, keep fast ones, blend between; and make the scores larger.

    An angle is fast if it turns more than beta_fast times in the trained length, slow if fewer than beta_slow times.
    Source: Peng et al. 2023 (YaRN), section 3.

    Args:
        factor: how many times longer texts get.
        trained_len: length of the texts that the model was trained on.
        beta_fast, beta_slow: numbers of turns.
        magnitude: factor of every rotated feature of q and of k; null means 0.1 ln(factor) + 1.
    """

    def __init__(
        self,
        factor: float,
        trained_len: int,
        beta_fast: float = 32.0,
        beta_slow: float = 1.0,
        magnitude: float | None = None,
    ) -> None:
        check_factor(factor)
        check_positive(trained_len=trained_len)
        check_above(0, "1 is usual", beta_slow=beta_slow)
        check_above(0, "32 is usual", beta_fast=beta_fast)
        if beta_slow >= beta_fast:
            raise ConfigError(f"beta_slow ({beta_slow}) must be below beta_fast ({beta_fast}): 1 and 32 are usual")
        if magnitude is None:
            magnitude = 0.1 * math.log(factor) + 1
        check_above(0, "null means 0.1 ln(factor) + 1", magnitude=magnitude)
        self.factor, self.trained_len = float(factor), trained_len
        self.beta_fast, self.beta_slow, self.magnitude = beta_fast, beta_slow, float(magnitude)

    def __call__(self, frequencies: Tensor, base: float) -> Tensor:
        d = 2 * len(frequencies)

        def pair_that_turns(times: float) -> float:
            return d * math.log(self.trained_len / (times * 2 * math.pi)) / (2 * math.log(base))

        first = max(math.floor(pair_that_turns(self.beta_fast)), 0)
        last = min(math.ceil(pair_that_turns(self.beta_slow)), d - 1)
        if last == first:
            last += 0.001  # a step instead of a ramp
        pair = torch.arange(d // 2, device=frequencies.device, dtype=frequencies.dtype)
        slow = ((pair - first) / (last - first)).clamp(0, 1)
        return frequencies / self.factor * slow + frequencies * (1 - slow)
