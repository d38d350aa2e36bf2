"""Seeds of the random draws inside a step: functions of the run's seed and of a counter."""

import torch


def seed_device(device: torch.device, seed: int) -> None:
    """Seed the generators that a computation on `device` draws from.

    torch.manual_seed also queues a call, with a stack trace, for each kind of device that has not been used:
    half a millisecond per step, and memory that is never given back.

    Args:
        device: where the model is.
        seed: 0 to 2**63 - 1.
    """
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)


def derive_seed(seed: int, index: int) -> int:
    """Mix a seed with a counter into 63 well-spread bits (the finaliser of SplitMix64, Steele et al. 2014).

    Args:
        seed: the run's seed.
        index: which draw: 0, 1, 2, ...
    """
    z = (seed * 0xD1342543DE82EF95 + (index + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return (z ^ (z >> 31)) >> 1


_MASK = (1 << 64) - 1
