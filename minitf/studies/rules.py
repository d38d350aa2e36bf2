"""When numbers say yes or no, and when they say neither.

With up to six seeds a difference between two cells is claimed only where their values do not overlap; p, interval and
effect inform.

    expectation    supported                                     refuted
    level          every seed inside the bounds                  every seed outside
    more, by > 0   every difference >= by, no overlap            every difference < by
    more, by = 0   every difference > 0, no overlap              every difference <= 0, no overlap or all equal
    more, by < 0   every difference >= by ("not worse")          every difference < by, no overlap
    same           every difference within the bound             every difference beyond it, no overlap

With seven seeds or more one that differs no longer leaves all open, or more evidence would decide less. The interval
of the mean (Student's t, 95 %) then stands for "every": where all of it is inside the bounds, at least `by` or within
the bound, the expectation is supported, where none of it is, refuted. For "more, by >= 0" to be supported, p corrected
by Holm must be at most 0.05, too, or every seed agree without overlap, as with few seeds: of many comparisons p cannot
become so small.

Everything else is undecided. An effect in the expected direction that is smaller than its bound counts as refuted: "no
seed as far apart as expected".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minitf.studies import statistics
from minitf.studies.comparison import reaches
from minitf.studies.judgement import REFUTED, SUPPORTED, UNDECIDED, Comparison
from minitf.studies.study import Expectation

LEAST_SEEDS = 3
ALPHA = 0.05
MANY_SEEDS = 7  # with which p can be 1/64, and below 0.05 after a correction for three comparisons


def level(e: Expectation, values: Mapping[str, Mapping[int, float]]) -> tuple[str, str]:
    """Outcome of an expectation about one cell, and why.

    Args:
        e: of a study.
        values: cell -> seed -> value, all finite.
    """
    of = list(values[e.cells[0]].values())
    if len(of) >= MANY_SEEDS:
        return _by_interval(of, e.low, e.high)
    inside = [reaches(v, e.low) and (e.high is None or reaches(-v, -e.high)) for v in of]
    return _counted(inside, "inside the bounds")


def pair(e: Expectation, c: Comparison) -> tuple[str, str]:
    """Outcome of an expectation about two cells, and why.

    Args:
        e: of a study.
        c: of its two cells.
    """
    of = list(c.differences.values())
    if len(of) >= MANY_SEEDS:
        return _by_interval(of, -e.high, e.high) if e.kind == "same" else _more_of_many(e, c)
    if e.kind == "same":
        within = [reaches(-abs(d), -e.high) for d in of]
        outcome, why = _counted(within, "within the bound")
        overlap = outcome == REFUTED and not c.apart
    else:
        agree = [reaches(d, e.low) and (d > 0 or e.low < 0) for d in of]
        outcome, why = _counted(agree, "as far apart as expected" if e.low else "in the expected order")
        if outcome == REFUTED and e.low > 0 and c.apart == 1:
            why += f", though more in every seed, by {min(of):.3g} .. {max(of):.3g}"
        overlap = {
            SUPPORTED: e.low >= 0 and c.apart != 1,
            REFUTED: e.low <= 0 and c.apart != -1 and any(of),
        }.get(outcome, False)
    return (UNDECIDED, f"{why}, but the conditions overlap") if overlap else (outcome, why)


def _more_of_many(e: Expectation, c: Comparison) -> tuple[str, str]:
    outcome, why = _by_interval(list(c.differences.values()), e.low, None)
    if e.low >= 0 and max(c.differences.values()) <= 0:
        return REFUTED, why
    unanimous = c.apart == 1 and all(reaches(d, e.low) for d in c.differences.values())
    if outcome == SUPPORTED and e.low >= 0 and c.p_holm > ALPHA and not unanimous:
        return UNDECIDED, f"{why}, but p is {c.p_holm:.2g}"
    return outcome, why


def _by_interval(values: Sequence[float], low: float | None, high: float | None) -> tuple[str, str]:
    """Whether the interval of the mean lies inside bounds, outside, or across one; None: open."""
    least, most = statistics.mean_interval(values)
    why = f"the mean of {len(values)} seeds lies between {least:.4g} and {most:.4g}"
    if reaches(least, low) and (high is None or reaches(-most, -high)):
        return SUPPORTED, why
    outside = (low is not None and not reaches(most, low)) or (high is not None and not reaches(-least, -high))
    return (REFUTED if outside else UNDECIDED), why


def _counted(agree: Sequence[bool], what: str) -> tuple[str, str]:
    n, of = sum(agree), len(agree)
    if n in (0, of):
        return (SUPPORTED, f"every seed {what}") if n else (REFUTED, f"no seed {what}")
    return UNDECIDED, f"{n} of {of} seeds {what}"


def _by(differences: Sequence[float]) -> str:
    """How far, of seeds that agree; else what each of them may say."""
    least, most = min(differences), max(differences)
    if least < 0 < most:
        mean = sum(differences) / len(differences)
        return f"on average ({mean:+.4g}; of single seeds {least:+.4g} .. {most:+.4g})"
    sizes = sorted(map(abs, (least, most)))
    return f"by {sizes[0]:.4g} .. {sizes[1]:.4g}"


def answer(compared: Sequence[Comparison]) -> str:
    """What comparisons show where nothing was expected, in a sentence for each.

    Args:
        compared: paired by seed.
    """
    told = []
    for c in compared:
        of, (one, other) = list(c.differences.values()), c.cells
        clear = len(of) >= MANY_SEEDS and c.p_holm <= ALPHA
        if clear or (c.apart and len(of) >= LEAST_SEEDS):
            where = "above" if c.mean > 0 else "below"
            told.append(f"{c.metric} of {one} is {where} that of {other} {_by(of)}")
        elif len(of) < LEAST_SEEDS:
            few = "1 seed is" if len(of) == 1 else f"{len(of)} seeds are"
            told.append(f"{one} and {other}: {few} too few, at least {LEAST_SEEDS} are needed")
        else:
            told.append(f"{c.metric} of {one} and of {other}: no clear difference")
    return "; ".join(told) or "one cell, so there is nothing to compare"
