"""A judged study as plain data: what tables, files and pages are made from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from minitf.studies.glossary import meaning
from minitf.studies.judgement import Comparison, Figure, Judgement, Outcome
from minitf.studies.result import Result
from minitf.studies.study import Expectation, Study


@dataclass(frozen=True)
class Item:
    """One judged study, and how to run it again.

    Args:
        study, results, judgement: of it.
        command: as a user would type it.
    """

    study: Study
    results: Sequence[Result]
    judgement: Judgement
    command: str


def as_data(item: Item) -> dict[str, Any]:
    """Everything of a judged study in dicts, lists, texts and finite numbers: strict JSON can hold it.

    Args:
        item: the study. A number that is not finite becomes None, and beside a seed's value its name is kept.
    """
    study, judged = item.study, item.judgement
    found = {(r.cell, r.seed): r for r in item.results}
    return finite(
        {
            "name": study.name,
            **{name: getattr(study, name) for name in ("question", "claim", "source", "budget", "metric")},
            "covers": list(study.covers),
            "base": list(study.base),
            "under": list(study.under),
            "verdict": judged.verdict,
            "why": judged.why,
            "problems": list(judged.problems),
            "deciding": deciding(judged),
            "seeds": list(judged.seeds),
            "seconds": round(judged.seconds, 1),
            "command": item.command,
            "cells": [
                {"name": cell, "overrides": list(overrides), **_size(item.results, cell)}
                for cell, overrides in study.cells.items()
            ],
            "metrics": [_metric(item, metric, found) for metric in matters(study)],
            "expectations": [_expectation(outcome) for outcome in judged.outcomes],
            "outside": [found_elsewhere(f) for f in judged.figures if f.place == "outside"],
            "comparisons": [_comparison(c) for c in judged.comparisons],
            "effects": [_comparison(c) for c in judged.effects],
        }
    )


def matters(study: Study) -> list[str]:
    """Metrics that the study asks for, the deciding one first.

    Args:
        study: of which.
    """
    figures = (metric for of in study.figures.values() for metric in of)
    return list(dict.fromkeys([study.metric, *(e.metric for e in study.expect), *figures]))


def say(e: Expectation) -> str:
    """An expectation in words and numbers.

    Args:
        e: of a study.
    """
    if e.kind == "level":
        low, high = (None if b is None else short(b) for b in (e.low, e.high))
        bounds = f"in {low} .. {high}" if low and high else f"at least {low}" if low else f"at most {high}"
        return f"{e.metric} of {e.cells[0]}: {bounds}"
    if e.kind == "same":
        return f"{e.metric} of {e.cells[0]} and of {e.cells[1]}: within {short(e.high)}"
    if e.low < 0:
        return f"{e.metric} of {e.cells[0]}: at most {short(-e.low)} less than of {e.cells[1]}"
    return f"{e.metric} of {e.cells[0]}: {f'at least {short(e.low)} ' if e.low else ''}more than of {e.cells[1]}"


def deciding(judged: Judgement, most: int = 3) -> list[str]:
    """The numbers that decided, one line for each expectation; those that decided otherwise than the verdict first.

    Args:
        judged: the judgement.
        most: further ones are only counted.
    """
    told = []
    for o in sorted(judged.outcomes, key=lambda o: o.outcome == judged.verdict):
        parts = [f"{cell} {_span(list(values.values()))}" for cell, values in o.values.items()]
        line = f"{o.expectation.metric}: {' against '.join(parts)}"
        told.append(line if o.outcome == judged.verdict else f"{line} ({o.outcome})")
    for c in judged.comparisons if not judged.outcomes else ():
        told.append(f"{c.metric}: {c.cells[0]} - {c.cells[1]} = {_span(list(c.differences.values()))}")
    told = list(dict.fromkeys(told))
    return told if len(told) <= most else [*told[: most - 1], f"and {len(told) - most + 1} more"]


def found_elsewhere(f: Figure) -> str:
    """A figure that is not what was found before, in a line, with the reason where it is known.

    Args:
        f: outside.
    """
    before = " .. ".join(dict.fromkeys(map(short, (f.low, f.high))))
    how = "all seeds beyond it" if f.apart else "some seeds inside it or on both sides"
    return f"{f.metric} of {f.cell}: {short(f.mean)}, before {before}, {how}. {f.why or 'Why is not known.'}"


def short(value: float | None) -> str:
    """A number for a table: four digits; "–" for none.

    Args:
        value: any.
    """
    if value is None:
        return "–"
    return f"{value:.4g}".replace("e-0", "e-").replace("e+0", "e")


def finite(value: Any) -> Any:
    """Plain data in which numbers that are not finite are None.

    Args:
        value: dicts, lists, tuples, texts, numbers, bools and None.
    """
    if isinstance(value, Mapping):
        return {str(key): finite(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _span(values: Sequence[float]) -> str:
    values = [v for v in values if math.isfinite(v)]
    if not values:
        return "–"
    low, high = short(min(values)), short(max(values))
    return low if low == high else f"{low} .. {high}"


def _size(results: Sequence[Result], cell: str) -> dict[str, Any]:
    of = [r for r in results if r.cell == cell and not r.error]
    return {
        "n_params": max((r.n_params for r in of), default=0),
        "n_steps": max((r.n_steps for r in of), default=0),
        "seconds": round(sum(r.seconds for r in results if r.cell == cell), 1),
    }


def _metric(item: Item, metric: str, found: Mapping[tuple[str, int], Result]) -> dict[str, Any]:
    figures = {f.cell: f for f in item.judgement.figures if f.metric == metric}
    rows = []
    for cell in item.study.cells:
        of = [found.get((cell, seed)) for seed in item.judgement.seeds]
        if all(r and not r.error and metric not in r.scores for r in of):
            continue  # this cell has nothing of the kind
        values = [r.scores.get(metric) if r and not r.error else None for r in of]
        known = [v for v in values if v is not None and math.isfinite(v)]
        figure = figures.get(cell)
        rows.append(
            {
                "cell": cell,
                "values": values,
                "shown": [_shown(r, value) for r, value in zip(of, values, strict=True)],
                "mean": sum(known) / len(known) if known else None,
                "reference": [figure.low, figure.high] if figure else None,
                "place": figure.place if figure else "",
                "n_inside": figure.n_inside if figure else None,
            }
        )
    bounds = [
        {"cell": e.cells[0], "low": e.low, "high": e.high}
        for e in item.study.expect
        if e.kind == "level" and e.metric == metric
    ]
    said = meaning(metric, item.study.file)
    return {
        "name": metric,
        "meaning": said,
        "decides": metric == item.study.metric,
        "rows": rows,
        "bounds": bounds,
        "courses": [course for cell in item.study.cells if (course := _course(item.results, cell, metric))["points"]],
    }


def _course(results: Sequence[Result], cell: str, metric: str) -> dict[str, Any]:
    """Mean over seeds of a metric by step, at the steps that all of them have."""
    of = [dict(r.courses[metric]) for r in results if r.cell == cell and metric in r.courses]
    steps = sorted(set.intersection(*map(set, of))) if of else []
    return {"cell": cell, "points": [[step, sum(course[step] for course in of) / len(of)] for step in steps]}


def _shown(result: Result | None, value: float | None) -> str:
    if result is None:
        return "missing"
    return "failed" if result.error else short(value)


def _expectation(o: Outcome) -> dict[str, Any]:
    e = o.expectation
    return {
        "text": say(e),
        "says": e.says,
        "when": e.when,
        "control": e.control,
        "kind": e.kind,
        "metric": e.metric,
        "cells": list(e.cells),
        "low": e.low,
        "high": e.high,
        "outcome": o.outcome,
        "why": o.why,
    }


def _comparison(c: Comparison) -> dict[str, Any]:
    effect = "" if math.isfinite(c.effect) else "fewer than 3 differences" if math.isnan(c.effect) else "no spread"
    return {
        **asdict(c),
        "of": f"{', '.join(c.factors)}: " if c.factors else "",  # said before the cells
        "differences": list(c.differences.values()),
        "seeds": list(c.differences),
        "no_effect": effect,
    }
