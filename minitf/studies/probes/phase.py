"""When copying comes in one training run, and how fast."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from minitf.studies.loop import Subject, train
from minitf.studies.measures.copying import rounds
from minitf.studies.measures.induction import heads
from minitf.studies.probes.fresh import fresh


def phase(seed: int, overrides: Sequence[str], every: int = 10, more: Sequence[str] = ()) -> dict[str, float]:
    """Train on data=repeat and look every few steps.

    Args:
        seed: of the run.
        overrides: of configs/train.yaml.
        every: steps.
        more: further overrides.

    Returns:
        "copied", "copied_nll" and "in_context" at the end, as `rounds` gives them; "prefix", "previous", "copying" at
        the end, as `heads` gives them; "rise", the share of the run between a tenth and nine tenths of the way from the
        first to the last accuracy; "together", the correlation of accuracy and prefix matching along the run; "lead",
        by what share of the run previous-token attention reaches half its way before prefix matching does.
    """
    subject = fresh([*overrides, *more], seed)
    n_steps = subject.cfg.trainer.max_steps
    at = range(0, n_steps + 1, every)
    course: dict[str, list[float]] = {"copied": [], "prefix": [], "previous": []}
    last: dict[str, float] = {}

    def look(subject: Subject) -> None:
        found = rounds(subject) | heads(subject, n_batches=1)
        for name, values in course.items():
            values.append(found[name])
        last.update(found)

    train(subject, at=at, look=look)
    copied, prefix, previous = (torch.tensor(values) for values in course.values())
    return {
        **last,
        "rise": (crossed(copied, 0.9) - crossed(copied, 0.1)) * every / n_steps,
        "together": float(torch.corrcoef(torch.stack([copied, prefix]))[0, 1]),
        "lead": (crossed(prefix, 0.5) - crossed(previous, 0.5)) * every / n_steps,
    }


def crossed(course: torch.Tensor, share: float) -> int:
    """Where a course first is `share` of the way from its first to its last value.

    Args:
        course: (n,), that rises.
        share: 0 to 1.
    """
    return int((course >= course[0] + share * (course[-1] - course[0])).int().argmax())
