"""Learning-rate schedules, counted in optimizer steps.

Each is a factory (optimizer, n_steps, ...) -> LambdaLR that multiplies the optimizer's own rates by a factor:
over the first `warmup_steps` steps it rises as (step + 1) / warmup_steps, so that step 0 already learns, and
then it follows its own curve. A run shorter than its warm-up ends within it.
"""

import math
from collections.abc import Callable

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from minitf.errors import ConfigError


def cosine(optimizer: Optimizer, n_steps: int, warmup_steps: int = 0, min_ratio: float = 0.0) -> LambdaLR:
    """Fall along half a cosine from 1 to min_ratio (Loshchilov and Hutter 2017, eq. 5, without restarts).

    Args:
        optimizer: whose rates are scheduled.
        n_steps: optimizer steps of the whole run.
        warmup_steps: optimizer steps of the linear rise.
        min_ratio: the factor at the end, 0 to 1.

    Raises:
        ConfigError: a number out of range.
    """
    _check(n_steps, warmup_steps, min_ratio)

    def factor(step: int) -> float:
        falling = 0.5 * (1 + math.cos(math.pi * _progress(step, warmup_steps, n_steps)))
        return min_ratio + (1 - min_ratio) * falling

    return _with_warmup(optimizer, warmup_steps, factor)


def linear(optimizer: Optimizer, n_steps: int, warmup_steps: int = 0, min_ratio: float = 0.0) -> LambdaLR:
    """Fall in a straight line from 1 to min_ratio.

    Args:
        optimizer: whose rates are scheduled.
        n_steps: optimizer steps of the whole run.
        warmup_steps: optimizer steps of the linear rise.
        min_ratio: the factor at the end, 0 to 1.

    Raises:
        ConfigError: a number out of range.
    """
    _check(n_steps, warmup_steps, min_ratio)

    def factor(step: int) -> float:
        return min_ratio + (1 - min_ratio) * (1 - _progress(step, warmup_steps, n_steps))

    return _with_warmup(optimizer, warmup_steps, factor)


def constant(optimizer: Optimizer, n_steps: int, warmup_steps: int = 0) -> LambdaLR:
    """Stay at 1 after the warm-up.

    Args:
        optimizer: whose rates are scheduled.
        n_steps: optimizer steps of the whole run.
        warmup_steps: optimizer steps of the linear rise.

    Raises:
        ConfigError: a number out of range.
    """
    _check(n_steps, warmup_steps)
    return _with_warmup(optimizer, warmup_steps, lambda step: 1.0)


def inverse_sqrt(optimizer: Optimizer, n_steps: int, warmup_steps: int = 0) -> LambdaLR:
    """Fall as sqrt(warmup_steps / (step + 1)) after the warm-up (Vaswani et al. 2017, eq. 3).

    The original's factor d_model^-0.5 belongs into the rate; here the peak, at the end of the warm-up, is 1.

    Args:
        optimizer: whose rates are scheduled.
        n_steps: optimizer steps of the whole run; the curve itself does not depend on it.
        warmup_steps: optimizer steps of the linear rise; 0 counts as 1 for the fall.

    Raises:
        ConfigError: a number out of range.
    """
    _check(n_steps, warmup_steps)
    return _with_warmup(optimizer, warmup_steps, lambda step: math.sqrt(max(warmup_steps, 1) / (step + 1)))


def wsd(
    optimizer: Optimizer,
    n_steps: int,
    warmup_steps: int = 0,
    decay_fraction: float = 0.2,
    min_ratio: float = 0.0,
) -> LambdaLR:
    """Warm up, stay at 1, then fall in a straight line over the last part (Hu et al. 2024, MiniCPM, sec. 4).

    Args:
        optimizer: whose rates are scheduled.
        n_steps: optimizer steps of the whole run.
        warmup_steps: optimizer steps of the linear rise.
        decay_fraction: share of n_steps over which it falls, above 0 up to 1.
        min_ratio: the factor at the end, 0 to 1.

    Raises:
        ConfigError: a number out of range.
    """
    _check(n_steps, warmup_steps, min_ratio)
    if not 0 < decay_fraction <= 1:
        raise ConfigError(f"schedule.decay_fraction ({decay_fraction}) must lie above 0 and at most at 1")
    first_falling = max(warmup_steps, n_steps - round(decay_fraction * n_steps))

    def factor(step: int) -> float:
        return min_ratio + (1 - min_ratio) * (1 - _progress(step, first_falling, n_steps))

    return _with_warmup(optimizer, warmup_steps, factor)


def _with_warmup(optimizer: Optimizer, warmup_steps: int, factor: Callable[[int], float]) -> LambdaLR:
    return LambdaLR(optimizer, lambda step: (step + 1) / warmup_steps if step < warmup_steps else factor(step))


def _progress(step: int, start: int, end: int) -> float:
    """Return how far `step` has come from `start` (0.0) to `end` (1.0), clipped to that range."""
    return min(1.0, max(0.0, (step - start) / max(1, end - start)))


def _check(n_steps: int, warmup_steps: int, min_ratio: float = 0.0) -> None:
    for name, value, least in [("trainer.max_steps", n_steps, 1), ("schedule.warmup_steps", warmup_steps, 0)]:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ConfigError(f"{name} ({value}) must be a whole number of at least {least}")
    if not 0 <= min_ratio <= 1:
        raise ConfigError(f"schedule.min_ratio ({min_ratio}) must lie from 0 to 1: it is a share of the peak rate")
