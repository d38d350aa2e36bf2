"""Values of a study file: each check gives the value back, or raises ConfigError with what it must be.

`what` is the file and the key.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from string import whitespace
from typing import Any

from minitf.errors import ConfigError

BETWEEN = ", "  # levels in the name of a cell


def override_key(override: str) -> str:
    """What an override sets: all before "=", without the "+" of Hydra.

    Args:
        override: as typed.
    """
    return override.partition("=")[0].strip().lstrip("+")


def listed(names: Iterable[str]) -> str:
    """Names in quotes, for messages: the name of a cell may hold commas.

    Args:
        names: any.
    """
    return ", ".join(map(repr, names))


def as_name(value: Any) -> Any:
    """A name, or a list of names, with numbers as texts; all else as it is: checks say what is wrong with it.

    Args:
        value: as YAML reads it, for which 1 is no text.
    """
    if isinstance(value, list):
        return [as_name(one) for one in value]
    return str(value) if type(value) in (int, float) else value


def quotes_needed(value: Any) -> str:
    """What to do about a name that YAML reads as something else; "" where that is not what happened.

    Args:
        value: as YAML reads it.
    """
    if value is None:
        return 'YAML reads null, ~ and an empty name so: put the name in quotes, such as "null"'
    if isinstance(value, bool):
        words, example = ("on, yes and true", "on") if value else ("off, no and false", "off")
        return f'YAML reads {words} so: put the name in quotes, such as "{example}"'
    return ""


def a_text(what: str, value: Any) -> str:
    """A text that is not blank."""
    if not isinstance(value, str) or not value.strip(whitespace):
        raise ConfigError(f"{what} ({value!r:.100}) must be a text, and not blank")
    return value


def texts(what: str, value: Any) -> list[str]:
    """A list of texts; one text is a list of it, null an empty one."""
    found = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(found, list) or not all(isinstance(text, str) and text.strip(whitespace) for text in found):
        raise ConfigError(f"{what} must be a list of texts such as [model.n_layers=2], got {value!r}")
    return found


def overrides(what: str, value: Any) -> list[str]:
    """Overrides without a seed."""
    typed = texts(what, value)
    if seeds := [override for override in typed if override_key(override).lstrip("~") == "seed"]:
        raise ConfigError(f"{what} says {seeds[0]!r}, but the seeds of a study are counted: give `seeds: 3`, how many")
    return typed


def own_overrides(what: str, value: Any) -> list[str]:
    """Overrides of a cell, or of a level: of different keys; what is shared may be set anew, not what is its own."""
    typed = overrides(what, value)
    keys = [override_key(override) for override in typed]
    if double := [key for key in keys if keys.count(key) > 1]:
        told = ", ".join(override for key, override in zip(keys, typed, strict=True) if key == double[0])
        raise ConfigError(f"{what} gives {double[0]} {keys.count(double[0])} times ({told}): it must be there once")
    return typed


def a_number(what: str, value: Any, least: float = -math.inf) -> float:
    """A finite number, at least `least`."""
    if type(value) not in (int, float) or not abs(value) <= sys.float_info.max or value < least:
        more = "" if least == -math.inf else f" of at least {least:g}"
        raise ConfigError(f"{what} ({value!r}) must be a number{more}")
    return value


def a_count(what: str, value: Any) -> int:
    """A whole number of at least 1."""
    if type(value) is not int or value < 1:
        raise ConfigError(f"{what} ({value!r}) must be a whole number of at least 1")
    return value


def a_flag(what: str, value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ConfigError(f"{what} ({value!r}) must be true or false")
    return value


def a_mapping(what: str, value: Any, of: str) -> Mapping[str, Any]:
    """A mapping; `of` says for messages what it holds."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{what} ({value!r:.100}) must be a mapping, {of}")
    return value


def a_list(what: str, value: Any, of: str) -> list[Any]:
    """A list; `of` says for messages what it holds."""
    if not isinstance(value, list):
        raise ConfigError(f"{what} ({value!r:.100}) must be a list of {of}")
    return value
