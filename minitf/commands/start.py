"""Where a run begins: at step 0 in an empty folder, or where an earlier process left it."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from omegaconf import DictConfig, OmegaConf

from minitf.config import DATA_FACTS, set_data_facts
from minitf.errors import ConfigError, DataError
from minitf.files import user_path
from minitf.hints import command, show_path
from minitf.training.launched import from_lightning

if TYPE_CHECKING:
    from minitf.command_line import Job
    from minitf.data.base import BaseData

# what may differ between the parts of one run: how long it is, and what is told about it
CHANGEABLE = ("trainer.max_steps", "trainer.log_every", "callbacks.every_seconds", "logger", "allow")


@dataclass
class Start:
    """What is to be trained, and from where.

    Attributes:
        cfg: the config; of a run that goes on, its own resolved one.
        checkpoint: to go on from; None: from step 0.
        step: optimizer steps that are done.
        record: what record.json holds of the run so far; None for a new run.
    """

    cfg: DictConfig
    checkpoint: Path | None = None
    step: int = 0
    record: dict[str, Any] | None = None


def resume_arguments(path: str) -> list[str]:
    """Prepare the command line for `resume=PATH ...`: Hydra makes no folder, and knows the run's kind of logger.

    Args:
        path: as typed.

    Returns:
        What was added to sys.argv.

    Raises:
        ConfigError: there is no run, or something was typed that a run cannot go on with.
    """
    typed = sys.argv[1:]
    if from_lightning():
        return []  # the process that started this one has checked all that
    if {"-m", "--multirun"} & set(typed):
        raise ConfigError(
            "resume=FOLDER goes on with one run; a sweep goes on when its own command is given again "
            "with hydra.sweep.dir=FOLDER"
        )
    folder = user_path(path).absolute()
    if path and folder.suffix == ".ckpt" and folder.is_file():
        folder = folder.parent
    if not path or not folder.is_dir():
        raise ConfigError(f"there is no run folder {path!r}: give the folder that training printed")
    if not (folder / "config.yaml").is_file():
        if (folder.parent / "config.yaml").is_file():
            raise ConfigError(f"{path} is a part of a run folder: give resume={show_path(folder.parent)}")
        raise ConfigError(f"{path} holds no run that was begun (it has no config.yaml): start it again")
    for argument in typed:
        if "=" in argument and not _may_change(key := _names(argument)):
            raise ConfigError(f"resume={path} goes on with the run's own config, so {key} cannot be given: {_WAYS}")
    added = ["hydra.run.dir=."]
    if not any(_names(argument) == "logger" for argument in typed):
        added.append(f"logger={read_record(folder)['choices']['logger']}")
    sys.argv[1:] = [*added, *typed]
    return added


def look(cfg: DictConfig, job: Job, resume: bool) -> Start:
    """Find out where the run in the job's folder stands.

    Args:
        cfg: composed from the command line.
        job: its folder is held.
        resume: go on with the folder's own config; else the folder must be empty, or, in a sweep, hold the same run.

    Raises:
        ConfigError: the folder holds another run, its files contradict each other, or the config was changed.
    """
    from minitf.runs import check_allow
    from minitf.training.folder import holds_run

    check_allow(cfg.allow)
    if not holds_run(job.folder):
        if resume:
            raise ConfigError(f"{job.folder} holds no run that was begun: start it again")
        return Start(cfg)
    if not (resume or job.sweep):
        raise ConfigError(
            f"{job.folder} already holds a run: resume={show_path(job.folder)} goes on with it; "
            "for a new run leave hydra.run.dir out, or name an empty folder"
        )
    # what was typed now, never what a stranger's config allows itself
    checkpoint, step, stored = _stored(job.folder, list(cfg.allow))
    if job.sweep:
        set_data_facts(cfg, **{fact: stored["data"].get(fact) for fact in DATA_FACTS})
        changes = OmegaConf.to_container(cfg, resolve=True)
        _refuse_difference(stored, changes, f"{job.folder} holds a run with another config")
        changed = list(CHANGEABLE)
    else:
        changes = OmegaConf.to_container(cfg, resolve=True)
        changed = [_names(override) for override in job.overrides]
    own = OmegaConf.create(stored)
    for key in sorted(changed):  # the kind of logger before its settings
        OmegaConf.update(own, key, OmegaConf.select(OmegaConf.create(changes), key), merge=False)
    if own.trainer.max_steps < step:
        raise ConfigError(f"the run has done {step} steps already; trainer.max_steps={own.trainer.max_steps} is fewer")
    return Start(own, checkpoint, step, read_record(job.folder))


def is_finished(start: Start, folder: Path) -> bool:
    """Whether nothing is left to do."""
    from minitf.training.status import FINISHED, read_status

    status = read_status(folder)
    finished = status is not None and status.get("status") == FINISHED
    return finished and start.step >= start.cfg.trainer.max_steps


def check_same_data(start: Start, data: BaseData, folder: Path) -> None:
    """Refuse to go on with other data than the run began with.

    Raises:
        DataError: the data, or the tokenizer that was made from it, is another one.
    """
    if start.record is None:
        return
    before = start.record["data"]
    if before["sha256"] != data.record["sha256"]:
        raise DataError(
            f"the data of {data.name} is not the one that this run began with "
            f"(sha256 {before['sha256']}, now {data.record['sha256']}): bring it back, or start a new run"
        )
    data.check_saved(folder)


def difference_of_machine(record: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What has changed since the run began, and can change the last bits of its results."""
    return [
        f"{name} was {record[name]} and is {now[name]}"
        for name in ("torch", "threads", "precision", "device")
        if name in record and record[name] != now[name]
    ]


def read_record(folder: Path) -> dict[str, Any]:
    """The content of a run's record.json.

    Raises:
        ConfigError: it is missing or damaged.
    """
    path = folder / "record.json"
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        whole = isinstance(record["data"]["sha256"], str) and isinstance(record.get("resumed", []), list)
        known = re.fullmatch(r"\w+", record["choices"]["logger"]) is not None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path} is missing or damaged ({error}): bring it back, or start a new run") from error
    if not (whole and known):
        raise ConfigError(f"{path} is damaged: bring it back, or start a new run")
    return record


def resume_command(folder: Path) -> str:
    """What to type to go on with the run in a folder."""
    return f"{command('train')} resume={shlex.quote(show_path(folder))}"


def _stored(folder: Path, allow: list[str]) -> tuple[Path | None, int, dict[str, Any]]:
    """(newest checkpoint, its step, config) of the run in a folder, the config checked."""
    from minitf.runs import check_config
    from minitf.training.checkpoint import FOLDER, checkpoints, find_checkpoint, read_checkpoint

    for name in ("config.yaml", "record.json", "metrics.csv"):
        if not (folder / name).is_file():
            raise ConfigError(f"{folder} lacks {name}, which every run has: bring it back, or start a new run")
    stored = _read_config(folder / "config.yaml")
    path, step = None, 0
    if checkpoints(folder / FOLDER, "last"):
        path = find_checkpoint(folder, "last")
        state = read_checkpoint(path)
        if not isinstance(state, dict) or not state.keys() >= _NEEDED or not isinstance(state["config"], dict):
            raise ConfigError(
                f"{path} lacks what a run goes on with ({', '.join(sorted(_NEEDED - set(state)))}): it comes from "
                "another version of minitf, or another program"
            )
        if [len(state[name]) for name in ("optimizer_states", "lr_schedulers")] != [1, 1]:
            raise ConfigError(f"the files in {folder} do not fit together: {path} holds no state of one optimizer")
        step = state["global_step"]
        _refuse_difference(state["config"], stored, f"{folder / 'config.yaml'} was changed since the run began")
    check_config(stored, allow)
    return path, step, stored


def _read_config(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):
            raise ValueError("it holds an alias, which no config of a run does")
        stored = OmegaConf.to_container(OmegaConf.create(text), resolve=False)
    except Exception as error:  # of several libraries
        raise ConfigError(f"{path} cannot be read as a config ({str(error).splitlines()[0]})") from error
    if not isinstance(stored, dict):
        raise ConfigError(f"{path} is no config of a run")
    missing = [key for key in ("model", "data", "trainer", "logger", "seed") if key not in stored]
    if missing:
        raise ConfigError(f"{path} is no config of a run; it lacks {', '.join(missing)}")
    return stored


def _refuse_difference(before: dict[str, Any], now: dict[str, Any], what: str) -> None:
    a, b = dict(_leaves(before)), dict(_leaves(now))
    for key in [*a, *(key for key in b if key not in a)]:
        if a.get(key, _MISSING) != b.get(key, _MISSING) and not _may_change(key):
            values = f"{key} was {a.get(key, _MISSING)} and is {b.get(key, _MISSING)}"
            raise ConfigError(f"{what}: {values}. A run goes on with its own config; start a new run for another one")


def _leaves(node: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict) and node:
        for name, child in node.items():
            yield from _leaves(child, f"{key}.{name}" if key else str(name))
    else:
        yield key, node


def _may_change(key: str) -> bool:
    return any(key == known or key.startswith(f"{known}.") for known in CHANGEABLE)


def _names(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]


_MISSING = "missing"
_NEEDED = {
    "config",
    "global_step",
    "state_dict",
    "optimizer_states",
    "lr_schedulers",
    "loops",
    "callbacks",
    "throughput",
}
_WAYS = f"only {', '.join(CHANGEABLE)} can change; start a new run for anything else"
