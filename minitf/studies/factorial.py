"""A study whose cells are all combinations of some factors: what each factor does by itself, and with another.

The name of a cell holds one level of each factor, as `factors` of a study writes it: "own V, W_Q, dot". For each seed

    main effect of a level   mean of the cells with it - mean of the cells with the factor's first level, else alike
    interaction of two       main effect of the one where the other is at its level - where the other is at its first

so an interaction is 0 where the two do not depend on each other. Box, Hunter and Hunter 2005, chapter 5; there an
interaction is half of this difference.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from minitf.studies import statistics
from minitf.studies.comparison import compare, values_of
from minitf.studies.form_values import BETWEEN
from minitf.studies.judgement import Comparison
from minitf.studies.result import Result

Values = Mapping[int, float]  # seed -> value
Levels = tuple[str, ...]  # of a cell, one of each factor


def levels(cells: Sequence[str]) -> list[list[str]] | None:
    """The levels of each factor, in order.

    Args:
        cells: names.

    Returns:
        None where the cells are not all combinations, or fewer than two factors have two or more levels: the effect of
        one alone is what the cells beside each other show.
    """
    split = [tuple(cell.split(BETWEEN)) for cell in cells]
    if not split or len({len(parts) for parts in split}) > 1:
        return None
    found = [list(dict.fromkeys(of)) for of in zip(*split, strict=True)]
    whole = set(itertools.product(*found)) == set(split) and len(set(split)) == len(split)
    return found if whole and sum(len(of) > 1 for of in found) > 1 else None


def effects(
    cells: Sequence[str], results: Sequence[Result], metric: str, names: Sequence[str] = ()
) -> tuple[Comparison, ...]:
    """Main effects and interactions of two factors, paired by seed, their p corrected for their number.

    Args:
        cells: names, all combinations.
        results: of them.
        metric: in which.
        names: of the factors, where the levels alone do not say enough.

    Returns:
        The `cells` of a comparison say what is compared: two levels, or one level beside two others. Empty where the
        cells are no combinations. A factor of one level has no effect, and a seed without a finite value of some cell
        is left out.
    """
    factors = levels(cells)
    if factors is None:
        return ()
    values = {tuple(cell.split(BETWEEN)): values_of(results, cell, metric) for cell in cells}
    seeds = sorted(set.intersection(*({s for s, v in of.items() if math.isfinite(v)} for of in values.values())))
    # an interaction may be small beside the values that it is computed from, and all rounding
    scale = {seed: max(abs(of[seed]) for of in values.values()) for seed in seeds}
    called = [(name,) for name in names] if len(names) == len(factors) else [()] * len(factors)
    made = []
    for i, of in enumerate(factors):
        for level in of[1:]:
            high, low = (_mean(values, seeds, {i: chosen}) for chosen in (level, of[0]))
            made.append(replace(compare(metric, (level, of[0]), high, low, scale), factors=called[i]))
    for (i, a), (j, b) in itertools.combinations(enumerate(factors), 2):
        for x, y in itertools.product(a[1:], b[1:]):
            with_it, without = (_effect(values, seeds, i, (x, a[0]), {j: chosen}) for chosen in (y, b[0]))
            compared = compare(metric, (f"{x} beside {y}", f"{x} beside {b[0]}"), with_it, without, scale)
            made.append(replace(compared, factors=called[i] + called[j]))
    corrected = statistics.holm([c.p for c in made])
    return tuple(replace(c, p_holm=p) for c, p in zip(made, corrected, strict=True))


def _mean(values: Mapping[Levels, Values], seeds: Sequence[int], where: Mapping[int, str]) -> dict[int, float]:
    """Mean of the cells with some levels, for each seed."""
    chosen = [of for cell, of in values.items() if all(cell[i] == level for i, level in where.items())]
    return {seed: math.fsum(of[seed] for of in chosen) / len(chosen) for seed in seeds}


def _effect(
    values: Mapping[Levels, Values], seeds: Sequence[int], i: int, of: tuple[str, str], where: Mapping[int, str]
) -> dict[int, float]:
    """Main effect of the first level of `of` against the second, among the cells with some other levels."""
    high, low = (_mean(values, seeds, {**where, i: level}) for level in of)
    return statistics.differences(high, low)
