"""When a head may be called something: above a threshold, above the null models, beyond a fixed offset."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from minitf.analysis.heads.measure import ACCURACY

PREVIOUS_TOKEN = 0.4  # Olsson et al. 2022
INDUCTION = 0.4
DUPLICATE_TOKEN = 0.4
COPYING = 0.8
SINK = 0.3  # Gu et al. 2024
STEADY = 0.9  # Voita et al. 2019: share of rows in which a positional head looks at its offset
BEYOND_OFFSET = 0.10  # accuracy of a head of a role above that of the best fixed offset
ABOVE_NULL = 0.05  # least distance from each null model: an untrained head is no better than another one
LEAST_ASKED = 30  # queries that must ask for a role
# name -> which score, and how large it must be
PATTERNS = {
    "previous-token": ("previous_token", PREVIOUS_TOKEN),
    "duplicate-token": ("duplicate_token", DUPLICATE_TOKEN),
    "induction": ("prefix_matching", INDUCTION),
    "copying": ("copying", COPYING),
    "sink": ("sink", SINK),
}


@dataclass(frozen=True)
class Name:
    """What a head is called, and why.

    Args:
        name: such as "induction", "offset -2" or a role.
        score: which score says so.
        value: of the head.
        needed: what it had to reach; the largest of the threshold, the null models and the fixed offset, each with its
            margin.
    """

    name: str
    score: str
    value: float
    needed: float


def names_of(
    scores: Mapping[str, float | None],
    nulls: Mapping[str, list[float]],
    baselines: Mapping[str, tuple[int, float, int]],
) -> list[Name]:
    """All names of one head.

    Args:
        scores: of the head.
        nulls: score -> what each null model reaches; a score that is not there has no null model, and names nothing.
        baselines: role -> best fixed offset, its share of right queries, number of queries.
    """
    found = [_named(name, score, least, scores, nulls) for name, (score, least) in PATTERNS.items()]
    offset = scores.get("steady_offset")
    if offset is not None and offset != 1:  # that one has a name of its own
        found.append(_named(offset_name(int(offset)), "steady_offset_share", STEADY, scores, nulls))
    for role, (_, share, n) in baselines.items():
        if n >= LEAST_ASKED:
            found.append(_named(role, ACCURACY + role, share + BEYOND_OFFSET, scores, nulls))
    return [name for name in found if name is not None]


def offset_name(k: int) -> str:
    """k places before: "offset -2"; "offset 0" is the token itself."""
    return f"offset {-k:+d}" if k else "offset 0"


def _named(
    name: str, score: str, least: float, scores: Mapping[str, float | None], nulls: Mapping[str, list[float]]
) -> Name | None:
    value = scores.get(score)
    if value is None or not nulls.get(score):
        return None
    needed = max(least, *(null + ABOVE_NULL for null in nulls[score]))
    return Name(name, score, value, needed) if math.isfinite(needed) and value >= needed else None
