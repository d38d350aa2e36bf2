"""Cells that were typed, base=... and over=...: read, and checked before anything is composed."""

from __future__ import annotations

import importlib
import inspect
import shlex
from collections.abc import Mapping, Sequence

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
    keys = list(map(_key, over))
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise ConfigError(f"over= has {twice[0]} twice: put all its values into one, {twice[0]}=A,B,C")
    _refuse_seed([*keys, *map(_key, base)])
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


def setting(text: str, cells: Mapping[str, Sequence[str]]) -> list[str]:
    """The overrides of with=..., which come after those of every cell of a study.

    Args:
        text: as typed.
        cells: all overrides of configs/train.yaml of each cell, which tell what can be changed; {}: none trains.

    Raises:
        ConfigError: there is none, one cannot be read, or is no key of a cell.
    """
    found = words(text, "with")
    if not found:
        raise ConfigError("with= is empty: give the setting of all cells, such as with='model/norm=rms'")
    keys = list(map(_key, found))
    _refuse_seed(keys)
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise ConfigError(f"with= has {twice[0]} twice: give it once")
    if gone := next((word for word in found if word.startswith("~")), ""):
        raise ConfigError(f"with= sets what all cells have: it can take nothing out, as {gone} would")
    if several := next((word for word in found if _has_several(word)), ""):
        raise ConfigError(f"with= is one setting: {several} has several values; a list is typed [a,b]")
    for cell, own in cells.items():
        if told := wrong_with([*own, *found], "train"):
            raise ConfigError(f"with, in the cell {cell!r}: {told}")
    return found


def check_arguments(target: str, found: Sequence[str]) -> None:
    """Raise ConfigError for a setting that is no argument of what a study computes.

    Args:
        target: the function, as the study names it; one that is not there is told where it is run.
        found: overrides.
    """
    module, _, name = target.rpartition(".")
    try:
        parameters = inspect.signature(getattr(importlib.import_module(module), name)).parameters
    except (ImportError, AttributeError, ValueError, TypeError):
        return
    if any(of.kind is of.VAR_KEYWORD for of in parameters.values()):
        return
    known = list(parameters)[1:]  # after the seed
    if odd := [key for key in map(_key, found) if key.partition(".")[0] not in known]:
        raise ConfigError(f"with: {odd[0]!r} is no argument of {target}; there are {', '.join(known)}")


def _has_several(override: str) -> bool:
    try:
        return len(combinations([override])) > 1
    except Exception:  # Hydra's own: what cannot be read is told elsewhere
        return False


def _refuse_seed(keys: Sequence[str]) -> None:
    if "seed" in keys:
        raise ConfigError("seed is no setting of a cell: every cell is done with the seeds 0, 1, ...; give seeds=N")


def _key(override: str) -> str:
    return override.partition("=")[0].lstrip("+~")
