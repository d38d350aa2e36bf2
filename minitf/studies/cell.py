"""One cell with one seed: trained and measured, or computed."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from minitf.config import build, check, compose
from minitf.studies.loop import Subject, prepare, train, validate
from minitf.studies.result import Result
from minitf.studies.study import Study


def run_cell(study: Study, cell: str, seed: int, more: Sequence[str] = ()) -> Result:
    """Train and measure one cell with one seed.

    Args:
        study: of the cell.
        cell: its name.
        seed: of data order, initial weights and dropout.
        more: further overrides, after those of the cell.

    Raises:
        ConfigError, DataError: what cannot work; the caller keeps it as the result's `error`.
    """
    begun = time.process_time()
    overrides = [*study.base, *study.cells[cell], f"seed={seed}", *more]
    cfg = compose("train", overrides)
    check(cfg, "train", overrides)
    subject = prepare(cfg)
    times = {name: _steps(node.get("at", "end"), cfg.trainer.max_steps) for name, node in study.measures.items()}
    courses: dict[str, list[tuple[int, float]]] = {}

    def look(subject: Subject) -> None:
        for name, node in study.measures.items():
            if subject.step not in times[name]:
                continue
            arguments = {key: value for key, value in node.items() if key != "at"}
            with torch.random.fork_rng(devices=[]):
                found = build({**arguments, "_partial_": True})(subject)
            for metric, value in found.items():
                courses.setdefault(metric, []).append((subject.step, float(value)))

    train(subject, at={step for steps in times.values() for step in steps}, look=look)
    scores = {metric: course[-1][1] for metric, course in courses.items() if course[-1][0] == subject.step}
    scores |= {f"start.{metric}": course[0][1] for metric, course in courses.items() if course[0][0] == 0}
    scores |= validate(subject)
    return Result(
        study.name,
        cell,
        seed,
        scores,
        {metric: course for metric, course in courses.items() if len(course) > 2},
        sum(p.numel() for p in subject.model.parameters()),
        subject.step,
        time.process_time() - begun,
    )


def _steps(at: str | Sequence[int], n_steps: int) -> set[int]:
    return {"end": {n_steps}, "start": {0, n_steps}}[at] if isinstance(at, str) else {min(s, n_steps) for s in at}
