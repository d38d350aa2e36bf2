"""The heads that copy: those that look at the token before, and those that look at what came after."""

from __future__ import annotations

from itertools import islice

from minitf.analysis.heads.measure import measure
from minitf.studies.loop import Subject


def heads(subject: Subject, n_batches: int = 2) -> dict[str, float]:
    """The best scores of any head, and what the best induction head writes.

    Args:
        subject: a decoder.
        n_batches: of validation that are looked at.

    Returns:
        "prefix", the largest prefix-matching score; "previous", the largest previous-token score of the first layer;
        "copying", the copying score of the head that matches prefixes best (Olsson et al. 2022).
    """
    found = measure(subject.model, list(islice(subject.data.val_batches(), n_batches)))
    first = next(iter(found.values()))
    best = max(found.values(), key=lambda of: float(of.scores["prefix_matching"].max()))
    head = int(best.scores["prefix_matching"].argmax())
    return {
        "prefix": float(best.scores["prefix_matching"][head]),
        "previous": float(first.scores["previous_token"].max()),
        "copying": float(best.scores["copying"][head]),
    }
