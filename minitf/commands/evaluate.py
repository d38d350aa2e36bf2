"""`minitf-evaluate`: how good a trained model is at its task, over the whole validation split."""

from __future__ import annotations

import sys
from typing import Any

from omegaconf import DictConfig, OmegaConf

from minitf.command_line import entry, friendly_errors, take_raw
from minitf.commands.generate import check_run
from minitf.config import build, build_data
from minitf.errors import ConfigError
from minitf.files import user_path
from minitf.typed import check_typed

SCORES_FILE = "scores.json"


def main() -> None:
    """Read the command line, print one table, and write it to the run's folder."""
    raw = take_raw(("run",))
    with friendly_errors("evaluate"):
        if {"-m", "--multirun"} & set(sys.argv[1:]):
            raise ConfigError("this command has no sweeps: call it once for each run")
        check_typed(sys.argv[1:])
    entry("evaluate", lambda cfg, job: print(evaluate(cfg, raw)))


def evaluate(cfg: DictConfig, raw: dict[str, str]) -> str:
    """Measure a run, write its scores.json, and return the table.

    Args:
        cfg: as in configs/evaluate.yaml.
        raw: `run` exactly as typed.

    Raises:
        ConfigError: no run, or none that can be loaded; a split that there is not.
        DataError: the data is not there, or not the one that the run was trained on.
        OSError: scores.json cannot be written.
    """
    if "run" not in raw:
        raise ConfigError("give the run that is to be measured, run=FOLDER: the folder that training printed")
    from minitf.commands.score.measure import Split, check_split, measure
    from minitf.commands.score.table import table
    from minitf.files import write_json

    folder = user_path(raw["run"])
    check_run(folder)
    check_split(cfg.split, cfg.n)
    model, objective, data, step = load(raw["run"], cfg)
    split = Split(data, cfg.split, cfg.n)
    found = {
        "run": raw["run"],
        "checkpoint": str(cfg.checkpoint),
        "step": step,
        "data": data.name,
        "split": {"val": "the validation split", "train": "the training split"}[cfg.split],
        "whole": split.whole,
        **measure(model, objective, data, split),
        "baselines": data.baselines(),
        "solved": getattr(getattr(data, "task", None), "solved", None),
    }
    write_json(folder / SCORES_FILE, found)
    return table(found)


def load(run: str, cfg: DictConfig) -> tuple[Any, Any, Any, int]:
    """Model, objective and prepared data of a run, and the step of the checkpoint.

    Args:
        run: its folder, as typed.
        cfg: `checkpoint` and `allow` of it are read.

    Raises:
        ConfigError, DataError: as for `evaluate`.
    """
    from minitf.commands.rehearse import fit_to_task
    from minitf.commands.start import Start, check_same_data, read_record
    from minitf.runs import check_config, load_run
    from minitf.training.checkpoint import find_checkpoint

    folder, allow = user_path(run), list(cfg.allow)
    model, _, run_cfg = load_run(folder, cfg.checkpoint, allow)
    # beside the model its data and its task are built: what they are made of is asked first
    check_config(OmegaConf.to_container(run_cfg), allow)
    objective = build(run_cfg.task)
    data = build_data(run_cfg).prepare(lambda line: print(line, file=sys.stderr))
    check_same_data(Start(run_cfg, record=read_record(folder)), data, folder)
    fit_to_task(data, objective)
    step = int(find_checkpoint(folder, cfg.checkpoint).stem.rpartition("=")[2])
    return model, objective, data, step
