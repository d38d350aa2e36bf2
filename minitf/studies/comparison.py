"""Cells beside each other, and beside what was found before."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from minitf.studies import statistics
from minitf.studies.judgement import Comparison, Figure
from minitf.studies.result import Result
from minitf.studies.study import Study

MOST_PAIRED = 5  # cells that are compared each with each: 10 comparisons share a correction
ROUNDING = 1e-9  # 0.7 - 0.5 reaches a bound of 0.2
NEAR_WIDTHS, NEAR_SHARE = 0.5, 0.02  # a spread of few seeds is too narrow: half its width, at least 2 % of its values


def values_of(results: Sequence[Result], cell: str, metric: str) -> dict[int, float]:
    """Seed -> value of a metric, of the results of a cell that have it.

    Args:
        results: of any cells.
        cell, metric: which.
    """
    own = sorted((r for r in results if r.cell == cell and not r.error), key=lambda r: r.seed)
    return {r.seed: float(r.scores[metric]) for r in own if metric in r.scores}


def comparisons(study: Study, results: Sequence[Result]) -> tuple[Comparison, ...]:
    """All comparisons of a study, their p corrected for their number.

    Without expectations each cell is compared with each, or if there are many with the first.

    Args:
        study, results: of it.
    """
    if study.expect:
        pairs = dict.fromkeys((e.metric, e.cells) for e in study.expect if len(e.cells) == 2)
    else:
        cells = list(study.cells)
        many = len(cells) > MOST_PAIRED
        beside = itertools.product(cells[:1], cells[1:]) if many else itertools.combinations(cells, 2)
        pairs = dict.fromkeys((study.metric, (later, earlier)) for earlier, later in beside)
    made = [compare(metric, cells, *(values_of(results, c, metric) for c in cells)) for metric, cells in pairs]
    corrected = statistics.holm([c.p for c in made])
    return tuple(replace(c, p_holm=p) for c, p in zip(made, corrected, strict=True))


def compare(
    metric: str,
    cells: tuple[str, str],
    a: Mapping[int, float],
    b: Mapping[int, float],
    scale: Mapping[int, float] | None = None,
) -> Comparison:
    """Two cells in one metric; `p_holm` is that of a study with this one comparison.

    Args:
        metric, cells: which.
        a, b: seed -> value of the first and second cell; what is not finite is left out.
        scale: see `statistics.differences`.
    """
    a, b = ({seed: v for seed, v in values.items() if math.isfinite(v)} for values in (a, b))
    paired = statistics.differences(a, b, scale)
    values = list(paired.values())
    low, high = statistics.interval(values)
    p = statistics.sign_flip_p(values)
    return Comparison(
        metric,
        cells,
        paired,
        float(np.mean(values)) if values else statistics.NAN,
        low,
        high,
        p,
        p,
        statistics.least_p(len(values)),
        statistics.effect_size(values),
        statistics.detectable(values),
        statistics.apart(list(a.values()), list(b.values())) if any(values) or not values else 0,
    )


def figure(cell: str, metric: str, spread: tuple[float, float], values: Sequence[float]) -> Figure:
    """A cell's values beside the spread that was found before.

    Args:
        cell, metric: which.
        spread: lowest, highest.
        values: of the seeds.
    """
    low, high = spread
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return Figure(cell, metric, low, high, statistics.NAN, 0, len(values), "missing")
    mean = float(np.mean(finite))
    room = max(NEAR_WIDTHS * (high - low), NEAR_SHARE * max(abs(low), abs(high)))
    inside = [reaches(v, low) and reaches(-v, -high) for v in [*finite, mean]]
    near = low - room <= mean <= high + room
    place = "inside" if inside[-1] else "near" if near else "outside"
    apart = max(finite) < low or min(finite) > high
    return Figure(cell, metric, low, high, mean, sum(inside[:-1]), len(values), place, apart)


def reaches(value: float, bound: float | None) -> bool:
    """Whether a value is at or above a bound, but for rounding; None: open.

    Args:
        value, bound: in the same unit.
    """
    return bound is None or value >= bound - ROUNDING * abs(bound)
