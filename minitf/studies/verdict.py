"""What the results of a study say about its claim.

Each expectation is judged by the rules of `minitf.studies.rules`. Undecided is, too, what rests on fewer than three
seeds, a missing seed, a failed cell or a score that is not finite. The study: see `_of_study`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from minitf.errors import ConfigError
from minitf.studies.comparison import comparisons, figure, values_of
from minitf.studies.factorial import effects
from minitf.studies.judgement import (
    CONDITIONAL,
    NO_CLAIM,
    NOT_JUDGED,
    REFUTED,
    SUPPORTED,
    UNDECIDED,
    Comparison,
    Figure,
    Judgement,
    Outcome,
)
from minitf.studies.result import Result
from minitf.studies.rules import LEAST_SEEDS, answer, level, pair
from minitf.studies.study import Expectation, Study


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
        if verdict == NO_CLAIM:
            why = f"incomplete: {unfinished[0]}" if unfinished else answer(compared)
        if study.left_out:
            verdict, why = NOT_JUDGED, _of_some_cells(study, outcomes)
    figures = tuple(
        _explained(study, figure(cell, metric, spread, list(values_of(kept, cell, metric).values())))
        for cell, of in study.figures.items()
        for metric, spread in of.items()
    )
    problems = (*unfinished, *_wild(study, kept))
    seconds = float(sum(r.seconds for r in kept))
    found_effects = effects(list(study.cells), kept, study.metric, study.factors)
    return Judgement(
        study.name, verdict, why, tuple(outcomes), compared, figures, problems, seeds, seconds, found_effects
    )


def _of_some_cells(study: Study, outcomes: Sequence[Outcome]) -> str:
    n, asked = len(study.cells), Counter(o.outcome for o in outcomes)
    told = ", ".join(f"{count} {outcome}" for outcome, count in asked.items()) or "none"
    return f"only {n} of {n + len(study.left_out)} cells; of the expectations that speak of no other cell: {told}"


def _explained(study: Study, found: Figure) -> Figure:
    why = [d.why for d in study.differences if found.cell in d.cells and found.metric in d.metrics]
    return replace(found, why=" ".join(why)) if found.place == "outside" else found


def _check_metrics(study: Study, results: Sequence[Result]) -> None:
    known = {metric for r in results for metric in r.scores}
    asked = [study.metric, *(e.metric for e in study.expect), *(m for of in study.figures.values() for m in of)]
    unknown = [metric for metric in asked if metric not in known]
    if unknown and (f"start.{unknown[0]}" in known or any(unknown[0] in r.courses for r in results)):
        raise ConfigError(
            f"study {study.name}: {unknown[0]!r} was measured on the way, but not after the last step, which counts: "
            "add the number of steps to `at` of its measure"
        )
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
    outcome, why = settled or (level(e, values) if comparison is None else pair(e, comparison))
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
        return CONDITIONAL, f"{told[SUPPORTED]} | refuted: {told[REFUTED]}"
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
