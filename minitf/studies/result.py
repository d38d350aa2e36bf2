"""What one cell gave with one seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
