"""One cell with one seed: trained and measured, or computed."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from omegaconf import DictConfig

from minitf.config import build, check, compose, typed_values
from minitf.errors import ConfigError
from minitf.studies.budget import settle
from minitf.studies.loop import Subject, prepare, train, validate
from minitf.studies.result import Result
from minitf.studies.study import Study


def run_cell(
    study: Study,
    cell: str,
    seed: int,
    more: Sequence[str] = (),
    smoke: bool = False,
    granted: float | None = None,
    composed: tuple[DictConfig, DictConfig | None] | None = None,
) -> Result:
    """Train and measure one cell with one seed, or compute it where the study says `run`.

    Args:
        study: of the cell.
        cell: its name.
        seed: of data order, initial weights and dropout.
        more: further overrides, after those of the cell.
        smoke: a trial, whose numbers mean nothing.
        granted: seconds of CPU for training; needed by all but the first cell where the budget is "seconds".
        composed: the config of the cell, which has been checked, and that of the first one; None: from the overrides.

    Raises:
        ConfigError, DataError: what cannot work; the caller keeps it as the result's `error`.
    """
    begun = time.process_time()
    if study.run is not None:
        scores = _computed(study.run, [*study.overrides(cell, smoke), *more], seed)
        return Result(study.name, cell, seed, scores, seconds=time.process_time() - begun)
    if composed is None:
        overrides, *first = ([*study.overrides(name, smoke), *more] for name in (cell, study.reference))
        composed = compose("train", overrides), compose("train", *first)
        check(composed[0], "train", overrides)
    cfg, reference = (copy.deepcopy(one) for one in composed)
    cfg.seed = seed
    subject = prepare(cfg, paired=True)
    granted = settle(study, cell, subject, None if cell == study.reference else reference, granted)
    return _trained(study, cell, subject, granted, begun)


def _trained(study: Study, cell: str, subject: Subject, granted: float | None, begun: float) -> Result:
    n_steps = subject.cfg.trainer.max_steps
    times = {name: _steps(node.get("at", "end"), n_steps) for name, node in study.measures.items()}
    courses: dict[str, list[tuple[int, float]]] = {}
    measuring = 0.0

    def look(subject: Subject) -> None:
        nonlocal measuring
        start = time.process_time()
        for name, node in study.measures.items():
            if subject.step in times[name]:
                for metric, value in _measured(name, node, subject).items():
                    courses.setdefault(metric, []).append((subject.step, value))
        measuring += time.process_time() - start

    start = time.process_time()
    trained = train(
        subject,
        at={step for steps in times.values() for step in steps},
        look=look,
        until=lambda step: granted is not None and time.process_time() - start - measuring >= granted,
    )
    scores = {metric: course[-1][1] for metric, course in courses.items() if course[-1][0] == subject.step}
    scores |= {f"start.{metric}": course[0][1] for metric, course in courses.items() if course[0][0] == 0}
    scores |= validate(subject)
    return Result(
        study.name,
        cell,
        subject.cfg.seed,
        scores,
        {metric: course for metric, course in courses.items() if len(course) > 2},
        sum(p.numel() for p in subject.model.parameters()),
        subject.step,
        time.process_time() - begun,
        trained=trained,
    )


def _measured(name: str, node: Mapping[str, Any], subject: Subject) -> dict[str, float]:
    arguments = {key: value for key, value in node.items() if key != "at"}
    with torch.random.fork_rng(devices=[]):
        found = build({**arguments, "_partial_": True})(subject)
    return _numbers(f"the measure {name!r}", found)


def _computed(node: Mapping[str, Any], overrides: Sequence[str], seed: int) -> dict[str, float]:
    """What a probe gives; the overrides are its arguments."""
    torch.manual_seed(seed)
    return _numbers(node["_target_"], build({**node, **dict(typed_values(overrides)), "_partial_": True})(seed))


def _numbers(what: str, found: Any) -> dict[str, float]:
    try:
        return {str(metric): float(value) for metric, value in found.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(f"{what} must give numbers by name, got {found!r:.200}") from error


def _steps(at: str | Sequence[int], n_steps: int) -> set[int]:
    if isinstance(at, str) and at not in ("end", "start"):
        raise ConfigError(f"a measure is taken at: end, start, or a list of steps, not {at!r}")
    return {"end": {n_steps}, "start": {0, n_steps}}[at] if isinstance(at, str) else {min(s, n_steps) for s in at}
