"""Copying in rows that are longer than those of training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from minitf.analysis.by_role import answered
from minitf.data.synthetic import NO_SOURCE
from minitf.studies.loop import Subject

ROLE = "repeat"


def lengths(subject: Subject, of: Sequence[int], n: int = 128) -> dict[str, float]:
    """Accuracy of copies in longer rows of the same kind: "at.48" for 48 tokens, and "lost.at.48", the first minus it.

    Most sources of such rows stand at places that training has seen, for the segment comes again and again.

    Args:
        subject: of data=repeat.
        of: tokens of a row; first as many as in training.
        n: rows.
    """
    found = {}
    for length in of:
        rows = subject.data.task.rows(np.random.default_rng(0), n, length)
        batch = {name: torch.from_numpy(rows[name]) for name in ("ids", "targets", f"gold.{ROLE}")}
        found[f"at.{length}"] = answered(subject.model, [batch])[ROLE].accuracy
    return found | {f"lost.at.{length}": found[f"at.{of[0]}"] - found[f"at.{length}"] for length in of[1:]}


def beyond(subject: Subject, begins: Sequence[int], within: int, n: int = 128, period: int = 6) -> dict[str, float]:
    """Accuracy in the second round of a segment whose first round begins at a later place: "begins.30" for 30.

    "lost.begins.30" is what it has less than where the segment begins at `within`.

    Before it stands another segment of other symbols, again and again. So each answer has one source, and where the
    segment begins beyond the trained length the source stands where no training token stood. With a small number all
    of it lies within, which tells what the change of the segment costs by itself.

    Args:
        subject: of data=repeat, with at least twice `period` symbols.
        begins: columns.
        within: the one of them that later ones are compared with; with it all of the segment lies within training.
        n: rows.
        period: symbols of each segment.
    """
    found = {}
    for start in begins:
        ids, gold = second_segment(subject.data.task.n_symbols, start, n, period)
        batch = {"ids": ids[:, :-1], "targets": ids[:, 1:], f"gold.{ROLE}": gold[:, :-1]}
        found[f"begins.{start}"] = answered(subject.model, [batch])[ROLE].accuracy
    inside = found[f"begins.{within}"]
    return found | {f"lost.begins.{start}": inside - found[f"begins.{start}"] for start in begins if start > within}


def second_segment(n_symbols: int, start: int, n: int, period: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows with a second segment from column `start` on, twice, and where its answers stand.

    Args:
        n_symbols: ids 1 to n_symbols are symbols, 0 begins a row.
        start: column, at least 1.
        n: rows.
        period: of both segments.

    Returns:
        ids (n, start + 2 period) and gold (n, start + 2 period, 1), the column that answers what comes next, for the
        tokens of the second round; its last one is followed by nothing, and has none.
    """
    rng = np.random.default_rng(0)
    symbols = 1 + rng.permuted(np.tile(np.arange(n_symbols), (n, 1)), axis=1)
    before, segment = symbols[:, :period], symbols[:, period : 2 * period]
    repeated = before[:, np.arange(start - 1) % period]
    ids = np.concatenate([np.zeros((n, 1), int), repeated, segment, segment], 1)
    gold = np.full((*ids.shape, 1), NO_SOURCE)
    second = np.arange(start + period, start + 2 * period - 1)
    gold[:, second, 0] = second + 1 - period
    return torch.from_numpy(ids), torch.from_numpy(gold)
