"""Anything that is measured of a model, along its training."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from torch import nn

Value = TypeVar("Value")


def over_time(
    load: Callable[[int], nn.Module], steps: Iterable[int], measure: Callable[[nn.Module], Value]
) -> list[tuple[int, Value]]:
    """Measure the snapshots of a run: [(step, value), ...] in the order of the steps; one model is held at a time.

    Args:
        load: step -> model, such as `lambda step: load_run(folder, which=step)[0]`.
        steps: which; `minitf.runs.snapshots(folder)` lists those that a run has kept.
        measure: any function of a model.
    """
    return [(step, measure(load(step))) for step in sorted(steps)]


def phase_change(course: Iterable[tuple[int, float]], level: float) -> int | None:
    """The first step from which on a value stays at or above a level; None if it never does.

    Args:
        course: [(step, value), ...], as `over_time` gives it.
        level: for example 0.4, from which on a head counts as an induction head.
    """
    since = None
    for step, value in sorted(course):
        if value < level:
            since = None
        elif since is None:
            since = step
    return since
