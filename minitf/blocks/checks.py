"""Checks that several parts share."""

from minitf.errors import ConfigError


def check_probability(name: str, value: float) -> None:
    """Raise ConfigError unless 0 <= value < 1."""
    if not 0 <= value < 1:
        raise ConfigError(f"{name} is a probability from 0 up to, not including, 1; got {value}")


def check_positive(**sizes: int) -> None:
    """Raise ConfigError unless every named size is a whole number of at least 1."""
    for name, value in sizes.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(f"{name} must be a whole number of at least 1, got {value!r}")
