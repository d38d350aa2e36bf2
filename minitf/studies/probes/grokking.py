"""When a model knows what it was shown, and when it knows the rule: the delay between them."""

from __future__ import annotations

from collections.abc import Sequence

from minitf.analysis.scores import accuracy
from minitf.studies.loop import Subject, train
from minitf.studies.probes.fresh import fresh

KNOWN, FOUND = 0.99, 0.95  # accuracy at which the shown pairs count as known, and the rule as found
SHOWN = 4  # training batches that are looked at


def grokking(seed: int, overrides: Sequence[str], every: int = 50, more: Sequence[str] = ()) -> dict[str, float]:
    """Train on data=modular and look every few steps at pairs that are shown and at pairs that never are.

    Args:
        seed: of the run.
        overrides: of configs/train.yaml.
        every: steps.
        more: further overrides.

    Returns:
        "shown" and "hidden", accuracy at the end; "known", the step at which 0.99 of the shown pairs are right, and
        "found", that at which 0.95 of the hidden ones are, the length of the run where they never are; "delay", found
        divided by known; "hidden_then", accuracy on hidden pairs when the shown ones are known; "norm", the norm of all
        weights at the end.
    """
    subject = fresh([*overrides, *more], seed)
    n_steps = subject.cfg.trainer.max_steps
    steps = [*range(0, n_steps, every), n_steps]
    course: list[tuple[int, float, float]] = []

    def look(subject: Subject) -> None:
        shown = accuracy(subject.model, [subject.data.batch(step) for step in range(SHOWN)])
        course.append((subject.step, shown, accuracy(subject.model, list(subject.data.val_batches()))))

    train(subject, at=steps, look=look)
    known, hidden_then = next(((step, h) for step, shown, h in course if shown >= KNOWN), (n_steps, course[-1][2]))
    found = next((step for step, _, hidden in course if hidden >= FOUND), n_steps)
    return {
        "shown": course[-1][1],
        "hidden": course[-1][2],
        "known": float(known),
        "found": float(found),
        "delay": found / max(known, 1),
        "hidden_then": hidden_then,
        "norm": sum(float(p.detach().square().sum()) for p in subject.model.parameters()) ** 0.5,
    }
