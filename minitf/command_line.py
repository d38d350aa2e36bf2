"""What every command shares: Hydra's command line, the checks before the work, one message for a mistake.

Nothing here imports torch at module level: help and refusals must answer at once.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from minitf.config import check, compose, config_dir, config_groups, known_keys
from minitf.errors import ConfigError, DataError
from minitf.training.launched import rank

# what a user can cause: told in one message
MISTAKES = (ConfigError, DataError, HydraException, OmegaConfBaseException, OSError)


@dataclass
class Job:
    """What a command knows beside its config.

    Attributes:
        folder: where this job may write.
        choices: option chosen in each group, for example {"model": "gpt_tiny"}.
        overrides: what was typed.
        sweep: folder of the sweep that this is a job of; None: no sweep.
    """

    folder: Path
    choices: dict[str, str]
    overrides: list[str]
    sweep: Path | None


def entry(name: str, work: Callable[[DictConfig, Job], None]) -> None:
    """Run `work` as a command with the config `name`: Hydra's command line, checks, one message for a mistake.

    A job of a sweep that fails does not end the others; it is named at the end, and the exit code is 1.

    Args:
        name: a file of the config folder, without ending.
        work: gets the checked config and the job.
    """
    jobs: list[Job] = []
    failures: list[str] = []

    def task(cfg: DictConfig) -> None:
        hydra_cfg = HydraConfig.get()
        job = Job(
            folder=Path(hydra_cfg.runtime.output_dir),
            choices=dict(hydra_cfg.runtime.choices),
            overrides=list(hydra_cfg.overrides.task),
            sweep=Path(hydra_cfg.sweep.dir).absolute() if hydra_cfg.mode == RunMode.MULTIRUN else None,
        )
        jobs.append(job)
        # paths count from where the command was started, also with hydra.job.chdir=true
        os.chdir(hydra_cfg.runtime.cwd)
        # here, because Hydra would add lines of its own
        with friendly_errors(name):
            try:
                check(cfg, name, job.overrides)
                work(cfg, job)
            except Exception as error:
                _remove_if_empty(job.folder)
                if not job.sweep:
                    raise
                failures.append(f"{job.folder}: {_told(error, name)}")

    # samples are text of any script, whatever the machine's locale; a sample must not fail a run
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    # Hydra would print its own shortened trace and hide ours
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    command = hydra.main(version_base="1.3", config_path=str(config_dir()), config_name=name)(task)
    with friendly_errors(name):
        command()
    if failures:
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
    if folder != Path.cwd() and folder.is_dir() and not any(folder.iterdir()):
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
        if isinstance(error, KeyboardInterrupt):
            print("\ninterrupted by SIGINT", file=sys.stderr)
            sys.exit(130)
        if not isinstance(error, MISTAKES):
            return False
        if os.environ.get("MINITF_TRACE"):
            traceback.print_exception(error)
        told = explain(error, self.name)
        if rank() == 0 or told.startswith("process "):  # what all processes of a run find, one of them tells
            print(f"error: {told}", file=sys.stderr)
        sys.exit(2)


def explain(error: BaseException, name: str) -> str:
    """The message of an error, with the nearest known name where a key is unknown."""
    text = str(error).strip()
    if isinstance(error, ConfigError | DataError):
        return text
    if isinstance(error, OSError) and not isinstance(error, HydraException):
        return f"{error.strerror or text}: {error.filename}" if error.filename else text
    while error.__cause__ is not None and not text:
        error = error.__cause__
        text = str(error)
    hints = [hint for arg in sys.argv[1:] if (hint := _nearest_for(arg, name))]
    for noise in ("\nSet the environment variable", "\nConfig search path:", "\nTo append to your config"):
        text = text.split(noise)[0]
    return "\n".join([re.sub(r"\n\s*", "\n  ", text.strip()), *hints])


def _nearest_for(arg: str, name: str) -> str | None:
    key = arg.lstrip("+~").split("=", 1)[0].split("@")[0]
    if "=" not in arg or arg.startswith("-"):
        return None
    try:
        base = compose(name, [a for a in sys.argv[1:] if a.split("=")[0] in config_groups()])
    except HydraException:
        base = compose(name)
    known = {*known_keys(base), *config_groups()}
    if key in known:
        return None
    near = difflib.get_close_matches(key, sorted(known), n=3, cutoff=0.5)
    return f"'{key}' is no key or group of '{name}'" + (f"; nearest: {', '.join(near)}" if near else "")
