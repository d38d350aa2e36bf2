"""What is known of a study when it has been judged: a verdict with everything that it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from minitf.studies.study import Expectation

SUPPORTED, CONDITIONAL, REFUTED, UNDECIDED = "supported", "supported under condition", "refuted", "undecided"
NOT_JUDGED, NO_CLAIM = "not judged", "no claim"
VERDICTS = (SUPPORTED, CONDITIONAL, REFUTED, UNDECIDED, NOT_JUDGED, NO_CLAIM)


@dataclass(frozen=True)
class Comparison:
    """Two cells in one metric, paired by seed.

    Args:
        metric, cells: what is compared; differences are first minus second.
        differences: seed -> difference, where both are finite.
        mean, low, high: of the differences, with the ends of the bootstrap interval.
        p, p_holm, least_p: of the sign-flip test of "no difference"; corrected within the study; the least possible.
        effect: Hedges' g of the differences; infinite without spread.
        detectable: the difference that would be found with 80 % power.
        apart: 1 or -1 where all values of the first cell are above or below those of the second, else 0.
        factors: of an effect, the one or two whose levels `cells` are; () where the levels alone say it.
    """

    metric: str
    cells: tuple[str, str]
    differences: Mapping[int, float]
    mean: float
    low: float
    high: float
    p: float
    p_holm: float
    least_p: float
    effect: float
    detectable: float
    apart: int
    factors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What became of one expectation.

    Args:
        expectation: as in the study.
        outcome: "supported", "refuted", "undecided" or "not judged".
        why: in words.
        values: cell -> seed -> value, of the cells that it is about.
        comparison: of its two cells; None where it is about one.
    """

    expectation: Expectation
    outcome: str
    why: str
    values: Mapping[str, Mapping[int, float]]
    comparison: Comparison | None = None


@dataclass(frozen=True)
class Figure:
    """A cell's values beside what was found before, with other code.

    Args:
        cell, metric: which.
        low, high: the spread found before.
        mean: of the seeds here; NaN without finite ones.
        n_inside, n: how many seeds lie inside, of how many.
        place: of the mean: "inside", "near" (within half a width, or 2 % of the value), "outside", or "missing".
        apart: whether all seeds lie on one side of the spread.
        why: it is outside, as far as the study knows.
    """

    cell: str
    metric: str
    low: float
    high: float
    mean: float
    n_inside: int
    n: int
    place: str
    apart: bool = False
    why: str = ""


@dataclass(frozen=True)
class Judgement:
    """The verdict of a study with everything it rests on.

    Args:
        study: its name.
        verdict: one of VERDICTS.
        why: in words.
        outcomes: of its expectations, in order.
        comparisons: all that were made and share one correction; without expectations each cell against the first.
        figures: beside those found before.
        problems: what is missing, failed or not finite.
        seeds: that were asked for.
        seconds: of CPU, of all results.
        effects: of factors and of pairs of them, where the cells are all combinations of some; corrected by themselves.
    """

    study: str
    verdict: str
    why: str
    outcomes: tuple[Outcome, ...]
    comparisons: tuple[Comparison, ...]
    figures: tuple[Figure, ...]
    problems: tuple[str, ...]
    seeds: tuple[int, ...]
    seconds: float
    effects: tuple[Comparison, ...] = ()
