"""The validation rows that a measure looks at."""

from __future__ import annotations

import itertools
import math

import torch

from minitf.analysis.forward import Batch, n_rows, rows_of
from minitf.studies.loop import Subject

ROWS = 128  # of the validation split: the same ones for every cell and seed


def sample(subject: Subject, rows: int = ROWS) -> list[Batch]:
    """The first `rows` validation rows, in batches as they come."""
    size = subject.data.batch_size
    batches = list(itertools.islice(subject.data.val_batches(), math.ceil(rows / size)))
    too_many = sum(map(n_rows, batches)) - rows
    return batches if too_many <= 0 else [*batches[:-1], rows_of(batches[-1], 0, n_rows(batches[-1]) - too_many)]


def joined(subject: Subject, rows: int = ROWS) -> Batch:
    """The same rows as one batch; for data whose rows are all as long."""
    batches = sample(subject, rows)
    return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}
