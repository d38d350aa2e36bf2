"""The scaling of Llama 3.1."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minitf.blocks.checks import check_above, check_positive
from minitf.blocks.position.scaling import Scaling, check_factor
from minitf.errors import ConfigError


class Llama3(Scaling):
    """Divide slow angles by the factor, keep fast ones, blend between by the number of turns in the trained length.

    Source: reference code of Llama 3.1 (Grattafiori et al. 2024).

    Args:
        factor: how many times longer texts get.
        trained_len: length of the texts that the model was trained on.
        slow_turns, fast_turns: an angle is slow below the one number of turns, fast above the other.
    """

    def __init__(self, factor: float, trained_len: int, slow_turns: float = 1.0, fast_turns: float = 4.0) -> None:
        check_factor(factor)
        check_positive(trained_len=trained_len)
        check_above(0, "1 is usual", slow_turns=slow_turns)
        check_above(0, "4 is usual", fast_turns=fast_turns)
        if slow_turns >= fast_turns:
            raise ConfigError(f"slow_turns ({slow_turns}) must be below fast_turns ({fast_turns}): 1 and 4 are usual")
        self.factor, self.trained_len = float(factor), trained_len
        self.slow_turns, self.fast_turns = slow_turns, fast_turns

    def __call__(self, frequencies: Tensor, base: float) -> Tensor:
        turns = self.trained_len * frequencies / (2 * math.pi)
        fast = ((turns - self.slow_turns) / (self.fast_turns - self.slow_turns)).clamp(0, 1)
        return torch.lerp(frequencies / self.factor, frequencies, fast)
