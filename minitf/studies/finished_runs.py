"""The runs of a sweep of `train.py -m` as cells with seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minitf.errors import ConfigError
from minitf.studies.adhoc import cell_name
from minitf.studies.result import Result
from minitf.studies.study import Study


def read_runs(folder: Path, metric: str | None) -> tuple[Study, list[Result]]:
    """The study that the run folders of a sweep are, and its results.

    Cells are the overrides that differ between the runs, without the seed; a run that is not finished has an error.

    Args:
        folder: holds the run folders.
        metric: the one that decides; None: accuracy where every run has one, else loss.

    Raises:
        ConfigError: no runs, or two with the same settings and seed.
    """
    runs = [path.parent for path in sorted(folder.glob("*/record.json")) if (path.parent / "config.yaml").is_file()]
    if not runs:
        raise ConfigError(f"{folder} holds no run folders: give runs=FOLDER the folder of a sweep, train.py -m ...")
    typed = {run: _typed(run) for run in runs}
    differing = _differing(list(typed.values()))
    results, cells = [], {}
    for run, overrides in typed.items():
        own = [f"{key}={overrides[key]}" for key in differing if key in overrides]
        cell = cell_name(own) or "as typed"
        if cells.setdefault(cell, own) != own:
            raise ConfigError(f"{folder}: two kinds of runs would both be called {cell!r}: {cells[cell]} and {own}")
        results.append(_result(folder.name, cell, run, int(overrides.get("seed", 0))))
    places = [(result.cell, result.seed) for result in results]
    if double := [place for place in places if places.count(place) > 1]:
        raise ConfigError(f"{folder} holds several runs of {double[0][0]!r} with seed {double[0][1]}: take one away")
    good = [result for result in results if not result.error]
    if metric is None:
        metric = "accuracy" if good and all("accuracy" in result.scores for result in good) else "loss"
    base = [f"{key}={value}" for key, value in next(iter(typed.values())).items() if key not in (*differing, "seed")]
    seeds = len({result.seed for result in results})
    question = f"What do the runs of {folder.name} say?"
    study = Study(folder.name, question, "", "", metric, cells, base=base, seeds=seeds)
    order = list(cells)
    return study, sorted(results, key=lambda result: (order.index(result.cell), result.seed))


def _typed(run: Path) -> dict[str, str]:
    """Key -> value of the overrides of a run."""
    overrides = _json(run / "record.json").get("overrides", [])
    return dict(override.lstrip("+").split("=", 1) for override in overrides if "=" in override)


def _differing(typed: list[dict[str, str]]) -> list[str]:
    keys = dict.fromkeys(key for overrides in typed for key in overrides)
    return [key for key in keys if key != "seed" and len({overrides.get(key) for overrides in typed}) > 1]


def _result(name: str, cell: str, run: Path, seed: int) -> Result:
    if not (run / "metrics.json").is_file():
        status = _json(run / "status.json").get("status", "not finished") if (run / "status.json").is_file() else ""
        return Result(name, cell, seed, error=f"{run.name} is {status or 'not finished'}: it has no metrics.json")
    metrics = _json(run / "metrics.json")
    scores = {key.removeprefix("val/"): value for key, value in metrics["final"].items() if key.startswith("val/")}
    seconds = float(metrics["train_seconds"])
    return Result(name, cell, seed, scores, {}, metrics["n_params"], metrics["steps"], seconds, trained=seconds)


def _json(path: Path) -> Mapping[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is missing or damaged ({error})") from error
