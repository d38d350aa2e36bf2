"""When heads became what they are: the best score of each pattern along the snapshots, and since when it stays."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from minitf.analysis.heads.names import PATTERNS
from minitf.analysis.over_time import phase_change
from minitf.report.heads_data import Snapshot
from minitf.report.lines import lines

MOST_ROWS = 12  # of the table; those around changes are kept


def training_text(snapshots: Sequence[Snapshot], metrics: Sequence[Mapping[str, float]]) -> str:
    """A table of patterns and roles, and a line for each pattern that some head came to show; "" without snapshots.

    Args:
        snapshots: in order, with the scores of all heads.
        metrics: rows of the run's metrics.csv.
    """
    if not snapshots:
        return ""
    measured = dict.fromkeys(name for snapshot in snapshots for name in snapshot.scores)
    known = [*(name for name in PATTERNS if name in measured), *(name for name in measured if name not in PATTERNS)]
    courses = {name: [(s.step, best(s, name)) for s in snapshots if name in s.scores] for name in known}
    losses = {int(row["step"]): row["val/loss"] for row in metrics if "val/loss" in row}
    shown = chosen(snapshots, courses)
    with_loss = any(snapshot.step in losses for snapshot in shown)  # not if it was validated at other steps only
    rows = [("step", *(["validation loss"] if with_loss else []), *known)]
    for snapshot in shown:
        row = [f"{snapshot.step:,}"]
        if with_loss:
            row.append(f"{losses[snapshot.step]:.4f}" if snapshot.step in losses else "")
        rows.append((*row, *(f"{best(snapshot, name):.3f}" if name in snapshot.scores else "" for name in known)))
    told = []
    for name, course in courses.items():
        if name not in PATTERNS:
            continue
        level = PATTERNS[name][1]
        since = phase_change(course, level)
        if since is not None:
            told.append(f"{name}: some head is at {level} or more from step {since:,} on")
    return "\n".join(["Along the training, the best score of any head, 0 to 1, from snapshots:", *lines(rows), *told])


def best(snapshot: Snapshot, name: str) -> float:
    """The largest score of any head; NaN where no head has one."""
    return max((value for value in snapshot.scores[name] if value is not None), default=float("nan"))


def chosen(snapshots: Sequence[Snapshot], courses: Mapping[str, Sequence[tuple[int, float]]]) -> list[Snapshot]:
    """At most MOST_ROWS of them, the first and the last among them: those between which most changes.

    Args:
        snapshots: in order.
        courses: name -> (step, value).
    """
    if len(snapshots) <= MOST_ROWS:
        return list(snapshots)
    values = [dict(course) for course in courses.values()]
    changes = [
        sum(abs(v[b.step] - v[a.step]) for v in values if a.step in v and b.step in v)
        for a, b in itertools.pairwise(snapshots)
    ]
    kept = {0, len(snapshots) - 1}
    for i in sorted(range(len(changes)), key=lambda i: -changes[i]):
        if len(kept | {i, i + 1}) > MOST_ROWS:
            break
        kept |= {i, i + 1}
    return [snapshots[i] for i in sorted(kept)]
