"""What Hydra says of a command line, in words that help."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import cache

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf.errors import KeyValidationError
from yaml import MarkedYAMLError

from minitf.config import choices, compose, config_dir, config_groups, group_options, one_option
from minitf.errors import ConfigError, DataError
from minitf.kinds import is_open, known_keys, nearest
from minitf.typed import is_no_option, is_override, program

WITH_PLUS = ("experiment", "bug")  # groups that no config has by itself
NOT_FOR_HYDRA: set[str] = set()  # keys that a command took off its command line


def explain(error: BaseException, name: str) -> str:
    """The message of an error, in minitf's own words where Hydra's would not help."""
    text = str(error).strip()
    if isinstance(error, ConfigError | DataError):
        return text
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        place = error.problem_mark
        told = f"{place.name}, line {place.line + 1}, column {place.column + 1}: this is no YAML: {error.problem}"
        return f"{told}. A text with a colon in it is put in quotes"
    if isinstance(error, OSError) and not isinstance(error, HydraException):
        return f"{error.strerror or text}: {error.filename}" if error.filename else text
    while error.__cause__ is not None and not text:
        error = error.__cause__
        text = str(error)
    if isinstance(error, KeyValidationError) and "'NoneType'" in text:
        where = f"below {error.full_key!r} " if error.full_key else ""
        return f'a name {where}in a YAML file is null, or empty: put it in quotes, such as "null"'
    hints = [hint for arg in sys.argv[1:] if (hint := _unreadable(arg))]
    hints = hints or [hint for arg in sys.argv[1:] if (hint := _nearest_for(arg, name))]
    if hints and not text.startswith("In '"):
        return "\n".join(hints)
    if option := re.search(r"Could not find '(.+)/([^/]+)'\s+Available options in '.+':\s+(.*)", text, re.DOTALL):
        return _no_option(option[1], option[2], option[3].split("\nConfig search path")[0].split())
    if place := re.search(r"In '([^']+)/([^']+)': Could not override '([^']+)'", text):
        return (
            f"{place[1]}={place[2]} chooses {place[3]}, for which another choice of yours has no place: take another "
            f"{place[1]}, or another {place[3].rpartition('/')[0]}"
        )
    if place := re.search(r"Could not override '([^']+)'", text):
        return f"{place[1]} cannot be chosen: nothing that is in use has a part at that place"
    if twice := re.search(r"Multiple values for (\S+?)\. ", text):
        return f"{twice[1]} has an option already: {twice[1]}=... without + takes another one"
    if primary := re.search(r"Cannot find primary config '(.+)'\.", text):
        return f"there is no config {primary[1]!r}: leave --config-name away, {program()} reads {name!r} by itself"
    for noise in ("\nSet the environment variable", "\nConfig search path:", "\nTo append to your", "\nSee https:"):
        text = text.split(noise)[0]
    return re.sub(r"\n\s*", "\n  ", text.strip())


def wrong_with(overrides: Sequence[str], name: str) -> str:
    """What is wrong with overrides that were not typed as arguments, in a line; "" where nothing is seen.

    Args:
        overrides: of one command line.
        name: of the config that they change.
    """
    for override in overrides:
        if told := _unreadable(override, several=False) or _nearest_for(override, name, tuple(overrides)):
            return told
        group, _, option = override.lstrip("+").partition("=")
        if group in config_groups() and not is_no_option(override) and option not in group_options(group):
            return _no_option(group, option, group_options(group))
    return ""


def _no_option(group: str, option: str, options: Sequence[str]) -> str:
    near = [o for o in options if option and o.startswith(option)]
    meant = f"; nearest: {', '.join(near[:5])}" if near else nearest(option, options)
    return f"{group}={option}: there is no such option; {group} can be {', '.join(options)}{meant}"


def _unreadable(arg: str, several: bool = True) -> str | None:
    """What is wrong with an argument that Hydra cannot read as key=value."""
    if arg.startswith("-"):
        return None
    key, equals, value = arg.partition("=")
    if not equals and not arg.startswith("~"):
        return f"{arg!r} is neither key=value nor group=option"
    quoted = shlex.quote(f'{key}="{value}"')
    try:
        parsed = OverridesParser.create().parse_override(arg)
    except HydraException:
        return f"the value of {arg!r} cannot be read as it is: if it is a text, quote it, {quoted}"
    if several and parsed.is_sweep_override() and not {"-m", "--multirun"} & set(sys.argv):
        return f"{arg!r} holds several values: to try each put -m first; as one text quote it, {quoted}"
    return None


def _nearest_for(arg: str, name: str, typed_too: Sequence[str] | None = None) -> str | None:
    """What is wrong with the key of an argument; beside it others were typed, by default those of this process."""
    typed = arg.partition("=")[0]
    key = typed.lstrip("+~").split("@")[0]
    if not is_override(arg) or key in NOT_FOR_HYDRA:
        return None
    if key.startswith("hydra"):
        return None if typed[:1] in "+~" else _nearest_of_hydra(key, name)
    groups = config_groups()
    beside = sys.argv[1:] if typed_too is None else typed_too
    own, known = _in_use(name, tuple(a for a in beside if a.partition("=")[0] in groups))
    if key in groups:
        if is_no_option(arg) or (typed.startswith("~") and key in own):
            return f"{one_option(key)}; got {arg}"
        if key in own or typed.startswith("+"):
            return None
        if key in WITH_PLUS:
            return f"{arg} adds to what is there: write it with a plus, +{arg}"
        return f"{key!r} is no group of '{name}'{_brought_by(key) or '; its groups: ' + ', '.join(own)}"
    new = [k for k in (key, *_keys_inside(arg, key)) if k not in known]
    if typed.startswith("+"):
        new = [k for k in new if not is_open(k)]
    return _unknown(new[0], name, known) if new else None


@cache
def _in_use(name: str, typed: tuple[str, ...]) -> tuple[dict[str, str | None], set[str]]:
    """The option of each group, as typed where that can be composed, and every key and group there is with them."""
    usable: list[str] = []
    own: dict[str, str | None] = choices(name)
    for one in sorted(typed, key=lambda t: t.partition("=")[0].count("/")):  # an outer option brings the inner groups
        with suppress(HydraException):
            own = choices(name, [*usable, one])
            usable.append(one)
    composed = compose(name, [f"{group}={option}" for group, option in own.items() if option])
    return own, {*known_keys(composed), *own}


def _brought_by(group: str) -> str:
    """Which options of the group above bring a group."""
    outer, _, last = group.rpartition("/")
    options = [
        o for o in group_options(outer) if f"- {last}: " in (config_dir() / outer / f"{o}.yaml").read_text("utf-8")
    ]
    return f" as it is: {' or '.join(f'{outer}={option}' for option in options)} brings it" if outer and options else ""


def _unknown(key: str, name: str, known: Collection[str]) -> str:
    if is_open(key):
        return f"{key} is new: what is new there is added with a plus, such as +{key}=..."
    return f"{key!r} is no key or group of '{name}'{nearest(key, known)}"


def _keys_inside(arg: str, key: str) -> list[str]:
    """The keys that a value like {a:1} names."""
    with suppress(HydraException):
        value = OverridesParser.create().parse_override(arg).value()
        return [f"{key}.{inner}" for inner in value] if isinstance(value, dict) else []
    return []


def _nearest_of_hydra(key: str, name: str) -> str | None:
    known = [f"hydra.{k}" for k in known_keys(compose(name, return_hydra_config=True).hydra)]
    return None if key in known or "/" in key else f"{key!r} is no key of Hydra's{nearest(key, known)}"
