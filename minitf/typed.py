"""Mistakes on the command line that Hydra would answer with its usage or a stack trace."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from minitf.config import config_groups, one_option
from minitf.errors import ConfigError
from minitf.kinds import nearest

# Hydra's own; the second ones take a value
FLAGS = "--help --hydra-help --version --resolve --run --multirun --shell-completion -h -r -m -sc".split()
VALUED = "--cfg --package --config-path --config-name --config-dir --experimental-rerun --info".split()
VALUED += "-c -p -cp -cn -cd -i".split()
# what Hydra reads as something else than a text
NO_TEXT = re.compile(r"null|true|false|[+-]?(inf|nan|[0-9][0-9_]*\.?[0-9_]*(e[+-]?[0-9_]+)?|\.[0-9_]+(e[+-]?[0-9_]+)?)")


def check_typed(arguments: Sequence[str]) -> None:
    """Refuse what Hydra answers with its usage or with a stack trace, before it sees it.

    Args:
        arguments: the command line behind the program.

    Raises:
        ConfigError: an unknown flag, one that stands between overrides, or null as the option of a group.
    """
    groups = config_groups()
    settings = [i for i, arg in enumerate(arguments) if is_override(arg)]
    if "--resolve" in arguments and not {"--cfg", "-c"} & set(arguments):
        raise ConfigError("--resolve goes with --cfg job, which prints the config")
    for i, arg in enumerate(arguments):
        if arg.startswith("@"):
            raise ConfigError(f"{arg!r} is neither key=value nor group=option")
        if arg.startswith("-"):
            _check_flag(arg)
            if settings and settings[0] < i < settings[-1]:
                in_order = shlex.join([arg, *arguments[:i], *arguments[i + 1 :]])
                raise ConfigError(f"flags stand before the settings: {program()} {in_order}")
        elif (group := arg.lstrip("+").partition("=")[0].partition("@")[0]) in groups and is_no_option(arg):
            raise ConfigError(f"{one_option(group)}; got {arg}")


def _check_flag(arg: str) -> None:
    flag, equals, _ = arg.partition("=")
    known = VALUED if equals else [*FLAGS, *VALUED]
    if flag in known:
        return
    if flag.startswith("--") and (meant := [name for name in known if name.startswith(flag)]):
        raise ConfigError(f"{arg} is short for {' or '.join(meant)}: write it out")
    if equals:
        raise ConfigError(f"{arg} is no flag; settings are typed without dashes: {arg.lstrip('-')}")
    raise ConfigError(f"{arg} is no flag{nearest(flag, known)}; {program()} --help shows them")


def program() -> str:
    """What was called: minitf-train, train.py."""
    return Path(sys.argv[0]).name


def is_override(arg: str) -> bool:
    """Whether an argument is a setting, not a flag or the value of one."""
    return not arg.startswith("-") and ("=" in arg or arg.startswith("~"))


def is_no_option(arg: str) -> bool:
    """Whether a group was given null, nothing, a number, a list or keys instead of one option."""
    option = arg.partition("=")[2].lower()
    return not arg.startswith("~") and (option == "" or option[0] in "[{" or bool(NO_TEXT.fullmatch(option)))
