"""What one cell gave with one seed."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Result:
    """One cell with one seed.

    Args:
        study, cell, seed: which.
        scores: metric -> number at the end; "start.NAME" what `NAME` was before the first step.
        courses: metric -> [(step, number), ...], of measures that are taken at several steps.
        n_params: of the model; 0 without one.
        n_steps: optimizer steps.
        seconds: of CPU, for training and measuring.
        trained: seconds of CPU for training alone.
        error: why there are no scores; "" where all went well.
    """

    study: str
    cell: str
    seed: int
    scores: Mapping[str, float] = field(default_factory=dict)
    courses: Mapping[str, list[tuple[int, float]]] = field(default_factory=dict)
    n_params: int = 0
    n_steps: int = 0
    seconds: float = 0.0
    error: str = ""
    trained: float = 0.0


def problem(result: Result) -> str:
    """What is wrong with a result that was read from a file, in words; "" where nothing is.

    Args:
        result: its fields may hold anything.
    """
    kinds = {
        "a text": (("study", "cell", "error"), lambda value: isinstance(value, str)),
        "a whole number": (("seed",), lambda value: type(value) is int),
        "a whole number of at least 0": (("n_params", "n_steps"), lambda value: type(value) is int and value >= 0),
        "a number of at least 0": (("seconds", "trained"), lambda value: _is_number(value) and 0 <= value < math.inf),
        "a mapping": (("scores", "courses"), lambda value: isinstance(value, dict)),
    }
    for kind, (names, fits) in kinds.items():
        for name in names:
            if not fits(value := getattr(result, name)):
                return f"{name} must be {kind}, not {value!r:.60}"
    for metric, value in result.scores.items():
        if not _is_number(value):
            return f"the score {metric} must be a number, not {value!r:.60}"
    for metric, course in result.courses.items():
        if not isinstance(course, list) or not all(_is_pair(pair) for pair in course):
            return f"the course of {metric} must be a list of steps and numbers, not {course!r:.60}"
    return "" if result.scores or result.error else "there are no scores"


def _is_number(value: Any) -> bool:
    """Whether a value is a number; one that is not finite is a result, too."""
    return type(value) is float or (type(value) is int and abs(value) <= sys.float_info.max)


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and type(value[0]) is int and _is_number(value[1])
