"""Whether a model knows in which order it reads, and whom its tokens read."""

from __future__ import annotations

from itertools import islice

import numpy as np
import torch

from minitf.analysis.capture import capture
from minitf.analysis.forward import evaluating, run
from minitf.analysis.heads.average import over_rows
from minitf.analysis.heads.rows import counted
from minitf.analysis.scores import accuracy
from minitf.studies.loop import Subject


@torch.no_grad()
def swapped(subject: Subject, columns: tuple[int, int] = (0, 2)) -> dict[str, float]:
    """The largest change of a logit of the last token when two earlier tokens change places: 0 where order is unknown.

    Args:
        subject: of data=who_chases_whom, whose nouns stand in columns 0 and 2.
        columns: that change places.

    Returns:
        "swap".
    """
    batch = dict(next(iter(subject.data.val_batches())))
    one, other = columns
    turned = batch["ids"].clone()
    turned[:, [one, other]] = batch["ids"][:, [other, one]]
    with evaluating(subject.model):
        change = run(subject.model, batch)[:, -1] - run(subject.model, {**batch, "ids": turned})[:, -1]
    return {"swap": float(change.abs().max())}


def drawn(subject: Subject, n: int = 2048) -> dict[str, float]:
    """Accuracy on rows drawn anew, whichever split they belong to: "drawn".

    In a small world of rows a model that is blind to order learns by heart what it was told of the same words. The
    validation split has few rows whose mirror image is in it too, so there such a model is wrong more often than not,
    and right in half of all rows.

    Args:
        subject: of a synthetic task.
        n: rows.
    """
    rows = subject.data.task.rows(np.random.default_rng(0), n, subject.data.seq_len)
    batch = {name: torch.from_numpy(array) for name, array in rows.items()}
    return {"drawn": accuracy(subject.model, [batch])}


def own(subject: Subject, n_batches: int = 2) -> dict[str, float]:
    """How much a token reads itself: "self", the largest over heads of the mean weight of the own token.

    Args:
        subject: any with self-attention.
        n_batches: of validation that are looked at.
    """
    sums = {}
    for batch in islice(subject.data.val_batches(), n_batches):
        for found in capture(subject.model, batch):
            weights = found.weights.diagonal(dim1=-2, dim2=-1)
            average = over_rows(weights, counted(found.q_pos, found.visible))
            sums[found.site] = sums[found.site] + average if found.site in sums else average
    return {"self": max(float(average.value.max()) for average in sums.values())}
