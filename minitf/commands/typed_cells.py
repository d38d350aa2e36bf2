"""Cells that were typed, base=... and over=...: read, and checked before anything is composed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from minitf.command_line import combinations
from minitf.errors import ConfigError
from minitf.explain import wrong_with


def words(text: str, name: str) -> list[str]:
    """The overrides in a text, with spaces between them; quotes hold a space.

    Args:
        text: as typed.
        name: of the setting, for messages.

    Raises:
        ConfigError: a quote without its second half, or a word that is no key=value.
    """
    try:
        found = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"{name}={text!r} cannot be read: {error}") from error
    if odd := [word for word in found if "=" not in word and not word.startswith("~")]:
        raise ConfigError(f"{name}: {odd[0]!r} is neither key=value nor group=option")
    if name == "over" and not found:
        raise ConfigError("over= is empty: give what the cells differ in, such as over='model/position=rope,alibi'")
    return found


def check_words(base: Sequence[str], over: Sequence[str]) -> None:
    """Raise ConfigError for typed overrides that cannot mean what they say.

    Args:
        base: what all cells share.
        over: what they differ in; each may hold several values.
    """
    keys = [word.partition("=")[0].lstrip("+") for word in over]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise ConfigError(f"over= has {twice[0]} twice: put all its values into one, {twice[0]}=A,B,C")
    if "seed" in [*keys, *(word.partition("=")[0].lstrip("+") for word in base)]:
        raise ConfigError("seed is no setting of a cell: every cell is done with the seeds 0, 1, ...; give seeds=N")
    if told := wrong_with(base, "train"):
        raise ConfigError(f"base: {told}")
    try:
        cells = combinations(over)
    except Exception as error:  # Hydra's own
        unreadable = next((told for word in over if (told := wrong_with([word], "train"))), "") or str(error)
        raise ConfigError(f"over: {unreadable}") from error
    if told := next((told for own in cells if (told := wrong_with([*base, *own], "train"))), ""):
        raise ConfigError(f"over: {told}")
    if len({tuple(own) for own in cells}) < len(cells):
        raise ConfigError(f"over={' '.join(over)!r} gives the same cell twice: name each value once")
