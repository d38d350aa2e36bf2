"""What every command shares: Hydra's command line, the checks before the work, one message for a mistake.

Nothing here imports torch at module level: help and refusals must answer at once.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from minitf.config import check, choices, compose, config_dir, config_groups, group_options, one_option
from minitf.errors import ConfigError, DataError
from minitf.kinds import known_keys, nearest
from minitf.training.launched import from_lightning, rank
from minitf.training.stop import Interrupted, StopSignals
from minitf.typed import is_no_option, is_override, program

# what a user can cause: told in one message
MISTAKES = (ConfigError, DataError, HydraException, OmegaConfBaseException, OSError)

RAW_KEYS: set[str] = set()  # arguments that Hydra does not see


@dataclass
class Job:
    """What a command knows beside its config.

    Attributes:
        folder: where this job may write.
        choices: option chosen in each group, for example {"model": "gpt_tiny"}.
        overrides: what was typed.
        sweep: folder of the sweep that this is a job of; None: no sweep.
        stop: handles the signals.
    """

    folder: Path
    choices: dict[str, str]
    overrides: list[str]
    sweep: Path | None
    stop: StopSignals = field(default_factory=StopSignals)


def entry(name: str, work: Callable[[DictConfig, Job], None]) -> None:
    """Run `work` as a command with the config `name`: Hydra's command line, checks, one message for a mistake.

    A job of a sweep that fails does not end the others; it is named at the end, and the exit code is 1.

    Args:
        name: a file of the config folder, without ending.
        work: gets the checked config and the job.
    """
    jobs: list[Job] = []
    failures: list[str] = []
    stop = StopSignals()

    def task(cfg: DictConfig) -> None:
        hydra_cfg = HydraConfig.get()
        job = Job(
            folder=Path(hydra_cfg.runtime.output_dir),
            choices=dict(hydra_cfg.runtime.choices),
            overrides=OmegaConf.to_container(hydra_cfg.overrides.task, resolve=False),
            sweep=Path(hydra_cfg.sweep.dir).absolute() if hydra_cfg.mode == RunMode.MULTIRUN else None,
            stop=stop,
        )
        jobs.append(job)
        # paths count from where the command was started, also with hydra.job.chdir=true
        os.chdir(hydra_cfg.runtime.cwd)
        # here, because Hydra would add lines of its own
        with friendly_errors(name):
            try:
                if not from_lightning():  # processes of one run stop together, when all of them are there
                    stop.release()
                check(cfg, name, job.overrides)
                work(cfg, job)
                stop.hold()
            except BaseException as error:
                stop.hold()
                _remove_if_empty(job.folder)
                if not (job.sweep and isinstance(error, Exception)):
                    raise
                failures.append(f"{job.folder}: {_told(error, name)}")

    # samples are text of any script, whatever the machine's locale; a sample must not fail a run
    if sys.stdout is not None:
        sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    # Hydra would print its own shortened trace and hide ours
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    command = hydra.main(version_base="1.3", config_path=str(config_dir()), config_name=name)(task)
    # a signal that comes while libraries are imported could leave them half made: it waits for the work
    with friendly_errors(name), stop:
        stop.hold()
        command()
        stop.release()
    if failures:
        if not any(job.folder.exists() for job in jobs):
            _remove_refused_sweep(jobs[0].sweep)
        print(f"error: {len(failures)} of {len(jobs)} jobs failed:", *failures, sep="\n  ", file=sys.stderr)
        sys.exit(1)


def _told(error: Exception, name: str) -> str:
    """Tell at once what went wrong in a job of a sweep; a fault of minitf with its trace. Returns the first line."""
    text = explain(error, name) if isinstance(error, MISTAKES) else f"{type(error).__name__}: {error}"
    if not isinstance(error, MISTAKES) or os.environ.get("MINITF_TRACE"):
        traceback.print_exception(error)
    print(f"error: {text}", file=sys.stderr, flush=True)
    return text.split("\n")[0]


def _remove_if_empty(folder: Path) -> None:
    """A refused command leaves no empty folder behind."""
    for place in (folder, folder.parent if folder.parent.name == "runs" else folder):
        if place != Path.cwd() and place.is_dir() and not any(place.iterdir()):
            place.rmdir()


def _remove_refused_sweep(folder: Path) -> None:
    """A sweep of which every job was refused leaves nothing behind, Hydra's own file included."""
    if [path.name for path in folder.iterdir()] == ["multirun.yaml"]:
        (folder / "multirun.yaml").unlink()
        folder.rmdir()


def take_raw(keys: Sequence[str]) -> dict[str, str]:
    """Take `key=text` arguments off the command line before Hydra reads it, so that the text stays as typed.

    Args:
        keys: names whose values are texts or paths, not YAML.

    Raises:
        SystemExit: a key was given twice.
    """
    taken: dict[str, str] = {}
    rest = []
    RAW_KEYS.update(keys)
    for arg in sys.argv[1:]:
        key, equals, text = arg.lstrip("+").partition("=")
        if not (equals and key in keys):
            rest.append(arg)
        elif key in taken:
            print(f"error: {key} was given twice: {taken[key]!r} and {text!r}", file=sys.stderr)
            sys.exit(2)
        else:
            taken[key] = text
    sys.argv[1:] = rest
    return taken


class friendly_errors:
    """Turn a user's mistake into one message on stderr and exit code 2; MINITF_TRACE=1 shows the trace as well."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, BrokenPipeError):
            # whoever reads our output has seen enough, as `head` has; the interpreter must not write the rest at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(141)
        if isinstance(error, KeyboardInterrupt | Interrupted):
            wish = error if isinstance(error, Interrupted) else Interrupted("SIGINT")
            if not wish.told and rank() == 0:
                print(f"\ninterrupted by {wish.name}", file=sys.stderr)
            sys.exit(wish.code)
        if not isinstance(error, MISTAKES):
            return False
        if os.environ.get("MINITF_TRACE"):
            traceback.print_exception(error)
        told = explain(error, self.name)
        if rank() == 0 or told.startswith("process "):  # what all processes of a run find, one of them tells
            print(f"error: {told}", file=sys.stderr)
        sys.exit(2)


def explain(error: BaseException, name: str) -> str:
    """The message of an error, in minitf's own words where Hydra's would not help."""
    text = str(error).strip()
    if isinstance(error, ConfigError | DataError):
        return text
    if isinstance(error, OSError) and not isinstance(error, HydraException):
        return f"{error.strerror or text}: {error.filename}" if error.filename else text
    while error.__cause__ is not None and not text:
        error = error.__cause__
        text = str(error)
    hints = [hint for arg in sys.argv[1:] if (hint := _unreadable(arg))]
    hints = hints or [hint for arg in sys.argv[1:] if (hint := _nearest_for(arg, name))]
    if hints and not text.startswith("In '"):
        return "\n".join(hints)
    if option := re.search(r"Could not find '(.+)/([^/]+)'\s+Available options in '.+':\s+(.*)", text, re.DOTALL):
        options = option[3].split("\nConfig search path")[0].split()
        return f"{option[1]}={option[2]}: there is no such option; {option[1]} can be {', '.join(options)}"
    if primary := re.search(r"Cannot find primary config '(.+)'\.", text):
        return f"there is no config {primary[1]!r}: leave --config-name away, {program()} reads {name!r} by itself"
    for noise in ("\nSet the environment variable", "\nConfig search path:", "\nTo append to your", "\nSee https:"):
        text = text.split(noise)[0]
    return re.sub(r"\n\s*", "\n  ", text.strip())


def _unreadable(arg: str) -> str | None:
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
    if parsed.is_sweep_override() and not {"-m", "--multirun"} & set(sys.argv):
        return f"{arg!r} holds several values: to try each put -m first; as one text quote it, {quoted}"
    return None


def _nearest_for(arg: str, name: str) -> str | None:
    """What is wrong with the key of an argument."""
    typed = arg.partition("=")[0]
    key = typed.lstrip("+~").split("@")[0]
    if not is_override(arg) or key in RAW_KEYS:
        return None
    if key.startswith("hydra"):
        return None if typed[:1] in "+~" else _nearest_of_hydra(key, name)
    groups = config_groups()
    own, known = _in_use(name, tuple(a for a in sys.argv[1:] if a.partition("=")[0] in groups))
    if key in groups:
        if is_no_option(arg) or (typed.startswith("~") and key in own):
            return f"{one_option(key)}; got {arg}"
        if key in own or typed.startswith("+"):
            return None
        return f"{key!r} is no group of '{name}'; its groups: {', '.join(own)}"
    return next((_unknown(k, name, known) for k in (key, *_keys_inside(arg, key)) if k not in known), None)


@cache
def _in_use(name: str, typed: tuple[str, ...]) -> tuple[dict[str, str | None], set[str]]:
    """The option of each group, as typed where that can be composed, and every key and group there is with them."""
    there_is = [t for t in typed if t.partition("=")[2] in group_options(t.partition("=")[0])]
    own: dict[str, str | None] = {}
    for groups in (typed, there_is, ()):
        with suppress(HydraException):
            own = choices(name, groups)
            break
    composed = compose(name, [f"{group}={option}" for group, option in own.items() if option])
    return own, {*known_keys(composed), *own}


def _unknown(key: str, name: str, known: Collection[str]) -> str:
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
