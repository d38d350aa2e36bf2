"""The runs of a sweep of `train.py -m` as cells with seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minitf.errors import ConfigError
from minitf.studies.adhoc import cell_name, factor_names
from minitf.studies.result import Result, problem
from minitf.studies.study import Study


def read_runs(folder: Path, metric: str | None) -> tuple[Study, list[Result]]:
    """The study that the run folders of a sweep are, and its results.

    Cells are the overrides that differ between the runs, without the seed; a run that is not finished has an error.

    Args:
        folder: holds the run folders.
        metric: the one that decides; None: accuracy where every run has one, else loss.

    Raises:
        ConfigError: no runs, two with the same settings and seed, or a file of a run that is damaged.
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
        results.append(_result(folder.name, cell, run, _seed(run, overrides)))
    places = [(result.cell, result.seed) for result in results]
    if double := [place for place in places if places.count(place) > 1]:
        raise ConfigError(f"{folder} holds several runs of {double[0][0]!r} with seed {double[0][1]}: take one away")
    good = [result for result in results if not result.error]
    if metric is None:
        metric = "accuracy" if good and all("accuracy" in result.scores for result in good) else "loss"
    base = [f"{key}={value}" for key, value in next(iter(typed.values())).items() if key not in (*differing, "seed")]
    seeds = len({result.seed for result in results})
    question = f"What do the runs of {folder.name} say?"
    study = Study(folder.name, question, "", "", metric, cells, base=base, seeds=seeds, factors=factor_names(cells))
    order = list(cells)
    return study, sorted(results, key=lambda result: (order.index(result.cell), result.seed))


def _typed(run: Path) -> dict[str, str]:
    """Key -> value of the overrides of a run."""
    path = run / "record.json"
    overrides = _json(path).get("overrides", [])
    if not isinstance(overrides, list) or not all(isinstance(override, str) for override in overrides):
        raise _damaged(path, f"overrides must be a list of texts, not {overrides!r:.60}")
    return dict(override.lstrip("+").split("=", 1) for override in overrides if "=" in override)


def _seed(run: Path, overrides: Mapping[str, str]) -> int:
    """That of the run, which an experiment may have set; while it has not ended, that of its overrides."""
    path = run / "metrics.json"
    metrics = _json(path) if path.is_file() else {}
    if "seed" in metrics:
        if not isinstance(metrics["seed"], int):
            raise _damaged(path, f"seed must be a whole number, not {metrics['seed']!r:.60}")
        return metrics["seed"]
    try:
        return int(overrides.get("seed", 0))
    except ValueError as error:
        told = f"seed={overrides['seed']} among its overrides is no whole number"
        raise _damaged(run / "record.json", told) from error


def _differing(typed: list[dict[str, str]]) -> list[str]:
    keys = dict.fromkeys(key for overrides in typed for key in overrides)
    return [key for key in keys if key != "seed" and len({overrides.get(key) for overrides in typed}) > 1]


def _result(name: str, cell: str, run: Path, seed: int) -> Result:
    path = run / "metrics.json"
    if not path.is_file():
        status = _json(run / "status.json").get("status", "") if (run / "status.json").is_file() else ""
        return Result(name, cell, seed, error=f"{run.name} is {status or 'not finished'}: it has no metrics.json")
    metrics = _json(path)
    final = metrics.get("final")
    scores = final if isinstance(final, dict) else {}
    scores = {key.removeprefix("val/"): value for key, value in scores.items() if key.startswith("val/")}
    seconds = metrics.get("train_seconds")
    result = Result(
        name, cell, seed, scores, {}, metrics.get("n_params"), metrics.get("steps"), seconds, trained=seconds
    )
    if wrong := problem(result):
        raise _damaged(path, wrong)
    return result


def _json(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, error) from error
    if not isinstance(content, dict):
        raise _damaged(path, f"it must hold a mapping, not {content!r:.60}")
    return content


def _damaged(path: Path, why: object) -> ConfigError:
    return ConfigError(f"{path} is missing or damaged ({why})")
