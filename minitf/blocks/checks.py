"""Checks that several parts share."""

from minitf.errors import ConfigError
from minitf.memory import total_memory


def check_probability(name: str, value: float) -> None:
    """Raise ConfigError unless 0 <= value < 1."""
    if not (is_number(value) and 0 <= value < 1):
        raise ConfigError(f"{name} is a probability from 0 up to, not including, 1; got {value!r}")


def check_positive(**sizes: int) -> None:
    """Raise ConfigError unless every named size is a whole number of at least 1 that fits into 64 bits."""
    for name, value in sizes.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(f"{name} must be a whole number of at least 1, got {value!r}")
        if value >= 2**63:
            raise ConfigError(f"{name} ({value}) is more than any tensor can have: choose a smaller size")


def check_above(least: float, hint: str, **values: float) -> None:
    """Raise ConfigError unless every named value is a finite number above `least`; `hint` is a way out."""
    for name, value in values.items():
        if not (is_number(value) and least < value < float("inf")):
            raise ConfigError(f"{name} must be a finite number above {least:g}, got {value!r}: {hint}")


def check_finite(**values: float) -> None:
    """Raise ConfigError unless every named value is a finite number."""
    for name, value in values.items():
        if not (is_number(value) and abs(value) < float("inf")):
            raise ConfigError(f"{name} must be a finite number, got {value!r}")


def is_number(value: object) -> bool:
    """A whole or a real number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_memory(n_params: int, what: str) -> None:
    """Raise ConfigError if so many parameters in float32 are more than this machine's memory.

    Args:
        n_params: number of parameters.
        what: what they belong to, for the message.
    """
    memory = total_memory()
    if 4 * n_params > memory:
        raise ConfigError(
            f"{what} has {n_params:,} parameters, which take {4 * n_params / 1e9:,.0f} GB; this machine has "
            f"{memory / 1e9:,.0f} GB of memory: choose smaller sizes"
        )
