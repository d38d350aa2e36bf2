"""What every command shares: Hydra's command line, the checks before the work, one message for a mistake.

Nothing here imports torch at module level: help and refusals must answer at once.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import hydra
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from minitf.config import check, compose, config_dir
from minitf.errors import ConfigError, DataError
from minitf.explain import NOT_FOR_HYDRA, explain
from minitf.help import help_text, is_asked_for
from minitf.hints import command, show_path, sweep_command
from minitf.training.launched import from_lightning, rank
from minitf.training.stop import Interrupted, StopSignals
from minitf.typed import is_override

# what a user can cause: told in one message
MISTAKES = (ConfigError, DataError, HydraException, OmegaConfBaseException, OSError, YAMLError)


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


def entry(name: str, work: Callable[[DictConfig, Job], float | None]) -> None:
    """Run `work` as a command with the config `name`: Hydra's command line, checks, one message for a mistake.

    A job of a sweep that fails does not end the others; it is named at the end, and the exit code is 1.

    Args:
        name: a file of the config folder, without ending.
        work: gets the checked config and the job; a number that it returns is what a sweeper such as Optuna makes
            small.
    """
    jobs: list[Job] = []
    failures: list[tuple[Job, str]] = []
    stop = StopSignals()
    process = os.getpid()

    def task(cfg: DictConfig) -> float | None:
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
        with friendly_errors(name, job.sweep):
            try:
                if not from_lightning():  # processes of one run stop together, when all of them are there
                    stop.release()
                check(cfg, name, job.overrides)
                found = work(cfg, job)
                stop.hold()
                return found
            except BaseException as error:
                stop.hold()
                _remove_if_empty(job.folder)
                if not (job.sweep and isinstance(error, Exception)):
                    raise
                failures.append((job, _told(error, name, job)))
        if os.getpid() != process:  # of a launcher: only what is raised reaches the one that counts
            raise ConfigError(f"{show_path(job.folder)}: {failures[-1][1]}")
        return float("nan")

    # samples are text of any script, whatever the machine's locale; a sample must not fail a run
    if sys.stdout is not None:
        sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    if is_asked_for():
        with friendly_errors(name):
            print(help_text(name))
        return
    # Hydra would print its own shortened trace and hide ours
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    run_jobs = hydra.main(version_base="1.3", config_path=str(config_dir()), config_name=name)(task)
    # a signal that comes while libraries are imported could leave them half made: it waits for the work
    stop.hold()
    with friendly_errors(name), stop:
        _compose_jobs(name)
        try:
            run_jobs()
        finally:
            if jobs and jobs[0].sweep and not any(job.folder.exists() for job in jobs):
                _remove_refused_sweep(jobs[0].sweep)
        stop.release()
    if failures:
        lines = [f"{show_path(job.folder)} ({_own(job, jobs)}): {text}" for job, text in failures]
        print(f"error: {len(failures)} of {len(jobs)} jobs failed:", *lines, sep="\n  ", file=sys.stderr)
        if name == "train" and jobs[0].sweep.exists():
            print(f"the others are done; the sweep goes on with: {sweep_command(jobs[0].sweep)}", file=sys.stderr)
        sys.exit(1)
    if name == "train" and len(jobs) > 1 and jobs[0].sweep:
        print(f"compare the runs: {command('ablate')} runs={show_path(jobs[0].sweep)}")


def _compose_jobs(name: str) -> None:
    """Find out, before a sweep makes its folder, whether Hydra can read all of its jobs."""
    arguments = sys.argv[1:]
    if not {"-m", "--multirun"} & set(arguments) or any(a.startswith(("--config", "-c")) for a in arguments):
        return
    if any(a.startswith("hydra/sweeper=") for a in arguments):  # another one has values of its own kind
        return
    for overrides in combinations([a for a in arguments if is_override(a) and not a.startswith("hydra")]):
        compose(name, overrides)


def combinations(typed: Sequence[str]) -> list[list[str]]:
    """The command lines that a sweep over `key=a,b` makes.

    Args:
        typed: overrides.

    Raises:
        HydraException: one cannot be read.
    """
    parsed = OverridesParser.create().parse_overrides(list(typed))
    return [overrides for batch in BasicSweeper.split_arguments(parsed, None) for overrides in batch]


def _own(job: Job, jobs: Sequence[Job]) -> str:
    """What was typed for this job and not for all of them."""
    return " ".join(o for o in job.overrides if not all(o in other.overrides for other in jobs)) or "as typed"


def _told(error: Exception, name: str, job: Job) -> str:
    """Tell at once what went wrong in a job of a sweep; a fault of minitf with its trace. Returns the first line."""
    text = explain(error, name) if isinstance(error, MISTAKES) else f"{type(error).__name__}: {error}"
    if not isinstance(error, MISTAKES) or os.environ.get("MINITF_TRACE"):
        traceback.print_exception(error)
    print(f"error in {show_path(job.folder)}: {text}", file=sys.stderr, flush=True)
    return text.split("\n")[0]


def _remove_if_empty(folder: Path) -> None:
    """A refused command leaves no empty folder behind."""
    for place in (folder, folder.parent if folder.parent.name == "runs" else folder):
        if place != Path.cwd() and place.is_dir() and not any(place.iterdir()):
            place.rmdir()


def _remove_refused_sweep(folder: Path) -> None:
    """A sweep of which every job was refused leaves nothing behind, Hydra's own file included."""
    if folder.is_dir() and [path.name for path in folder.iterdir()] == ["multirun.yaml"]:
        (folder / "multirun.yaml").unlink()
        _remove_if_empty(folder)


def take_raw(keys: Sequence[str]) -> dict[str, str]:
    """Take `key=text` arguments off the command line before Hydra reads it, so that the text stays as typed.

    Args:
        keys: names whose values are texts or paths, not YAML.

    Raises:
        SystemExit: a key was given twice.
    """
    taken: dict[str, str] = {}
    rest = []
    NOT_FOR_HYDRA.update(keys)
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

    def __init__(self, name: str, sweep: Path | None = None) -> None:
        self.name, self.sweep = name, sweep

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
                way = f"; the sweep goes on with: {sweep_command(self.sweep)}" if self.sweep else ""
                print(f"\ninterrupted by {wish.name}{way}", file=sys.stderr)
            sys.exit(wish.code)
        if not isinstance(error, MISTAKES):
            return False
        if os.environ.get("MINITF_TRACE"):
            traceback.print_exception(error)
        told = explain(error, self.name)
        if rank() == 0 or told.startswith("process "):  # what all processes of a run find, one of them tells
            print(f"error: {told}", file=sys.stderr)
        sys.exit(2)
