"""What the results of a study say about its claim.

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
the bound, the expectation is supported, where none of it is, refuted; for "more, by >= 0" to be supported, p corrected
by Holm must be at most 0.05, too.

Everything else is undecided, and so is what rests on fewer than three seeds, a missing seed, a failed cell or a score
that is not finite. An effect in the expected direction that is smaller than its bound counts as refuted: "no seed as
far apart as expected". The study: see `_of_study`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from minitf.errors import ConfigError
from minitf.studies import statistics
from minitf.studies.comparison import comparisons, figure, reaches, values_of
from minitf.studies.factorial import effects
from minitf.studies.judgement import (
    CONDITIONAL,
    NO_CLAIM,
    NOT_JUDGED,
    REFUTED,
    SUPPORTED,
    UNDECIDED,
    Comparison,
    Judgement,
    Outcome,
)
from minitf.studies.result import Result
from minitf.studies.study import Expectation, Study

LEAST_SEEDS = 3
ALPHA = 0.05
MANY_SEEDS = 7  # with which p can be below 0.05 (1/64), and 0.05 after a correction for three comparisons


def judge(study: Study, results: Sequence[Result], smoke: bool = False) -> Judgement:
    """Judge a study by its results.

    Args:
        study: with the number of seeds that was asked for.
        results: of its cells, in any order; a later one replaces an earlier one of the same cell and seed.
        smoke: the numbers mean nothing: nothing is judged.

    Raises:
        ConfigError: a metric of the study that no result has, though no cell has failed.
    """
    found = {(r.cell, r.seed): r for r in results if r.cell in study.cells}
    kept = list(found.values())
    seeds = tuple(sorted({*range(study.seeds), *(seed for _, seed in found)}))
    unfinished = _incomplete(found, study.cells, seeds)
    # a cell that has failed may be the one with the metric, and a trial may be too short to have it
    if not (unfinished or smoke):
        _check_metrics(study, kept)
    compared = comparisons(study, kept)
    if smoke:
        outcomes = [_outcome(e, compared, kept, (NOT_JUDGED, "a trial")) for e in study.expect]
        verdict, why = NOT_JUDGED, "a trial: its numbers mean nothing"
    else:
        outcomes = [_outcome(e, compared, kept, _lacking(e, found, seeds)) for e in study.expect]
        verdict, why = _of_study(outcomes, unfinished)
    figures = tuple(
        figure(cell, metric, spread, list(values_of(kept, cell, metric).values()))
        for cell, of in study.figures.items()
        for metric, spread in of.items()
    )
    problems = (*unfinished, *_wild(study, kept))
    seconds = float(sum(r.seconds for r in kept))
    found_effects = effects(list(study.cells), kept, study.metric)
    return Judgement(
        study.name, verdict, why, tuple(outcomes), compared, figures, problems, seeds, seconds, found_effects
    )


def _check_metrics(study: Study, results: Sequence[Result]) -> None:
    known = {metric for r in results for metric in r.scores}
    asked = [study.metric, *(e.metric for e in study.expect), *(m for of in study.figures.values() for m in of)]
    unknown = [metric for metric in asked if metric not in known]
    if unknown:
        raise ConfigError(
            f"study {study.name}: no result has the metric {unknown[0]!r}; there are {', '.join(sorted(known))}"
        )


def _outcome(
    e: Expectation, compared: Sequence[Comparison], results: Sequence[Result], settled: tuple[str, str] | None
) -> Outcome:
    """`settled`: outcome and reason where the numbers do not decide."""
    values = {cell: values_of(results, cell, e.metric) for cell in e.cells}
    comparison = next((c for c in compared if (c.metric, c.cells) == (e.metric, e.cells)), None)
    outcome, why = settled or (_level(e, values) if comparison is None else _pair(e, comparison))
    return Outcome(e, outcome, why, values, comparison)


def _lacking(e: Expectation, found: Mapping[tuple[str, int], Result], seeds: Sequence[int]) -> tuple[str, str] | None:
    """Undecided, and why, where an expectation cannot be judged."""
    told = _incomplete(found, e.cells, seeds)
    for cell in e.cells:
        scores = {seed: found[cell, seed].scores.get(e.metric) for seed in seeds if _is_whole(found, cell, seed)}
        without = [seed for seed, value in scores.items() if value is None]
        wild = [seed for seed, value in scores.items() if value is not None and not math.isfinite(value)]
        told += [f"{cell}: no {e.metric} with seed {_list(without)}"] if without else []
        told += [f"{cell}: {e.metric} is not finite with seed {_list(wild)}"] if wild else []
    if told:
        return UNDECIDED, "; ".join(told)
    if len(seeds) < LEAST_SEEDS:
        return UNDECIDED, f"a verdict needs at least {LEAST_SEEDS} seeds, not {len(seeds)}"
    return None


def _incomplete(found: Mapping[tuple[str, int], Result], cells: Iterable[str], seeds: Sequence[int]) -> list[str]:
    told = []
    for cell in cells:
        missing = [seed for seed in seeds if (cell, seed) not in found]
        failed = [seed for seed in seeds if (cell, seed) in found and found[cell, seed].error]
        told += [f"{cell}: failed with seed {_list(failed)}: {found[cell, failed[0]].error}"] if failed else []
        told += [f"{cell}: seed {_list(missing)} is missing"] if missing else []
    return told


def _is_whole(found: Mapping[tuple[str, int], Result], cell: str, seed: int) -> bool:
    return (cell, seed) in found and not found[cell, seed].error


def _wild(study: Study, results: Sequence[Result]) -> list[str]:
    """Scores that are not finite, of metrics that the study asks for."""
    asked = dict.fromkeys([study.metric, *(e.metric for e in study.expect)])
    return [
        f"{r.cell}: {metric} with seed {r.seed} is {r.scores[metric]}"
        for r in results
        for metric in asked
        if metric in r.scores and not math.isfinite(r.scores[metric])
    ]


def _level(e: Expectation, values: Mapping[str, Mapping[int, float]]) -> tuple[str, str]:
    of = list(values[e.cells[0]].values())
    if len(of) >= MANY_SEEDS:
        return _by_interval(of, e.low, e.high)
    inside = [reaches(v, e.low) and (e.high is None or reaches(-v, -e.high)) for v in of]
    return _counted(inside, "inside the bounds")


def _pair(e: Expectation, c: Comparison) -> tuple[str, str]:
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
        overlap = {
            SUPPORTED: e.low >= 0 and c.apart != 1,
            REFUTED: e.low <= 0 and c.apart != -1 and any(of),
        }.get(outcome, False)
    return (UNDECIDED, f"{why}, but the conditions overlap") if overlap else (outcome, why)


def _more_of_many(e: Expectation, c: Comparison) -> tuple[str, str]:
    outcome, why = _by_interval(list(c.differences.values()), e.low, None)
    if e.low >= 0 and max(c.differences.values()) <= 0:
        return REFUTED, why
    if outcome == SUPPORTED and e.low >= 0 and c.p_holm > ALPHA:
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


def _of_study(outcomes: Sequence[Outcome], problems: Sequence[str]) -> tuple[str, str]:
    """The verdict and why.

    A control that is not supported leaves everything undecided. What is asked under one condition (`when`) belongs
    together, and is refuted if anything of it is. What is asked always must be supported; then conditions that agree
    decide, and where some hold and others do not, the claim is supported under those that do. One that is open leaves
    the whole undecided.
    """
    if not any(not o.expectation.control for o in outcomes):
        return NO_CLAIM, "nothing was expected"
    if problems:
        return UNDECIDED, f"incomplete: {problems[0]}" + (f" (and {len(problems) - 1} more)" if problems[1:] else "")
    if failed := [o for o in outcomes if o.expectation.control and o.outcome != SUPPORTED]:
        return UNDECIDED, f"a control failed: {_words(failed)}"
    groups: dict[str, list[Outcome]] = {}
    for o in outcomes:
        if not o.expectation.control:
            groups.setdefault(o.expectation.when, []).append(o)
    found = {when: _together(of) for when, of in groups.items()}
    always = found.pop("", SUPPORTED)
    if always != SUPPORTED:
        return always, _words([o for o in groups[""] if o.outcome == always])
    kinds = set(found.values()) or {SUPPORTED}
    told = {kind: "; ".join(when for when, of in found.items() if of == kind) for kind in kinds}
    if UNDECIDED in kinds:
        settled = [f"{kind}: {told[kind]}" for kind in (SUPPORTED, REFUTED) if kind in kinds]
        return UNDECIDED, " | ".join([f"open: {told[UNDECIDED]}", *settled])
    if len(kinds) == 2:
        return CONDITIONAL, told[SUPPORTED]
    kind = kinds.pop()
    decided = [o for of in groups.values() for o in of]
    if kind == SUPPORTED:
        return kind, f"{len(decided)} of {len(decided)} expectations supported"
    return kind, _words([o for o in decided if o.outcome == kind])


def _together(outcomes: Sequence[Outcome]) -> str:
    kinds = {o.outcome for o in outcomes}
    return next((kind for kind in (REFUTED, UNDECIDED) if kind in kinds), SUPPORTED)


def _words(outcomes: Sequence[Outcome]) -> str:
    return "; ".join(dict.fromkeys(f"{o.expectation.says or _name(o.expectation)}: {o.why}" for o in outcomes))


def _name(e: Expectation) -> str:
    return f"{e.metric} of {' and '.join(e.cells)}"


def _list(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))
