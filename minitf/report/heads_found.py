"""Findings as one page: names, effects, maps, training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from minitf.analysis.heads.active import most_active, rows_at
from minitf.analysis.heads.measure import ACCURACY, measure
from minitf.analysis.heads.names import PATTERNS
from minitf.files import user_path
from minitf.report.examples import example, layers, maps_of, shortened, tokens
from minitf.report.heads_data import Head, HeadsPage, Role, Snapshot, TopRow

if TYPE_CHECKING:
    from torch import nn

    from minitf.analysis.findings import Findings
    from minitf.analysis.forward import Batch
    from minitf.analysis.heads.battery import HeadReport
    from minitf.analysis.sites import Site
    from minitf.report.examples import Symbols

METRICS = ("entropy_normalised", "confidence", "best_offset", "best_offset_score", "sink", "value_ratio", "importance")
HEALTH = "health/"
KINDS = ("encoder", "decoder", "cross")
MOVIE_ROWS = 64  # of the validation split, that scores along the training are taken from
MEASURES = {"accuracy": "accuracy of all answers", "loss": "loss in nats of all answers"}


def heads_page(
    found: Findings,
    model: nn.Module,
    data: Symbols,
    batches: Sequence[Batch],
    snapshots: Iterable[tuple[int, nn.Module]],
    metrics: Sequence[Mapping[str, float]],
    n_examples: int,
    max_tokens: int,
) -> HeadsPage:
    """Put a page together.

    Args:
        found: names and effects.
        model, data, batches: of the run.
        snapshots: step -> model, in order; read once.
        metrics: rows of the run's metrics.csv.
        n_examples: rows, from all over the batches.
        max_tokens: of an example.
    """
    shown, about, settings = found.shown, found.about, found.battery.settings
    n = settings["rows"]
    numbers = list(dict.fromkeys(i * n // n_examples for i in range(min(n_examples, n))))
    chosen = {number: shortened(row, max_tokens) for number, row in rows_at(batches, numbers).items()}
    examples = tuple(example(model, chosen[i], shown, data, f"validation row {i}") for i in numbers)
    top = _top_rows(model, batches, shown, data, max_tokens)
    heads = [_head(report, found, top.get((report.site, report.head), ())) for report in found.heads()]
    return HeadsPage(
        title=f"Heads of {user_path(about['run']).resolve().name}",
        layers=layers(shown),
        heads=tuple(heads),
        examples=examples,
        command=about["command"],
        question=f"What do the heads of {about['run']} (step {about['step']:,}) do on {about['data']}?",
        effect_of=MEASURES[found.measure],
        snapshots=tuple(_movie(snapshots, found, data, batches, chosen[numbers[0]])),
        health=health_curves(metrics),
        notes=(
            f"{n:,} rows of the validation split; null models: {settings['untrained']} untrained models, "
            f"{settings['shuffles']} shuffles of the gold (quantile {settings['quantile']}); "
            f"heads switched off by ablate={about['ablate']}",
        ),
    )


def _head(report: HeadReport, found: Findings, top: Sequence[TopRow]) -> Head:
    effect = found.effects.get((report.site, report.head))
    sign = {"accuracy": -1.0, "loss": 1.0}[found.measure]
    return Head(
        report.site.kind,
        report.site.layer,
        report.head,
        roles=tuple(_roles(report)),
        effect=sign * effect.lost["all"] + 0.0 if effect else None,  # not -0.0
        controls=tuple(sign * lost["all"] + 0.0 for _, lost in effect.controls) if effect else (),
        metrics={name: _metric(report, name) for name in METRICS},
        top_rows=tuple(top),
    )


def _metric(report: HeadReport, name: str) -> float | None:
    """A score; offsets with the sign that names have, as "offset -2" for two tokens before."""
    value = report.scores.get(name)
    return -value if name == "best_offset" and value is not None else value


def _roles(report: HeadReport) -> Iterable[Role]:
    """Every role that was measured, named or not."""
    scores = {name: score for name, (score, _) in PATTERNS.items()}
    scores |= {role: ACCURACY + role for role in report.baselines}
    for name, score in scores.items():
        value = report.scores.get(score)
        if value is None:
            continue
        nulls = [null[score] for null in (report.untrained, report.shuffled) if score in null]
        baseline = report.baselines[name][1] if name in report.baselines else None
        yield Role(name, value, max(nulls, default=None), baseline, report.is_called(name))
    for name in report.names:
        if name.name not in scores:
            nulls = [null[name.score] for null in (report.untrained, report.shuffled) if name.score in null]
            yield Role(name.name, name.value, max(nulls, default=None), None, True)


def _top_rows(
    model: nn.Module, batches: Sequence[Batch], shown: Mapping[Site, Sequence[int]], data: Symbols, max_tokens: int
) -> dict[tuple[Site, int], list[TopRow]]:
    found = most_active(model, batches, shown)
    rows = rows_at(batches, {row.row for active in found.values() for row in active})
    short = {number: shortened(row, max_tokens) for number, row in rows.items()}
    words: dict[tuple[int, str], list[str]] = {}
    made: dict[tuple[Site, int], list[TopRow]] = {}
    for (site, head), active in found.items():
        for row in active:
            key = (row.row, site.kind)
            if key not in words:
                words[key] = tokens(short[row.row], site.kind, data)[0]
            real = _real(rows[row.row], site.kind)[: len(words[key])]
            values = row.activity[real].clamp(0, 1).tolist()
            made.setdefault((site, head), []).append(TopRow(words[key], values, f"validation row {row.row}"))
    return made


def _real(row: Batch, kind: str) -> list[int]:
    from minitf.analysis.forward import positions

    return (positions(row, kind)[0][0] >= 0).nonzero()[:, 0].tolist()


def _movie(
    snapshots: Iterable[tuple[int, nn.Module]],
    found: Findings,
    data: Symbols,
    batches: Sequence[Batch],
    first: Batch,
) -> Iterable[Snapshot]:
    few = _first_rows(batches, MOVIE_ROWS)
    for step, model in snapshots:
        measured = measure(model, few)
        scores = {name: score for name, (score, _) in PATTERNS.items()}
        # heads of an encoder, which are the first of a model that translates, have no roles
        scores |= {role: ACCURACY + role for report in found.heads() for role in report.baselines}
        values: dict[str, list[float | None]] = {}
        for name, score in scores.items():
            of_heads = [
                float(measured[site].scores[score][head]) if score in measured[site].scores else float("nan")
                for site, heads in found.shown.items()
                for head in heads
            ]
            if any(value == value for value in of_heads):
                values[name] = [value if value == value else None for value in of_heads]
        yield Snapshot(step, values, maps_of(example(model, first, found.shown, data, "")))


def _first_rows(batches: Sequence[Batch], n: int) -> list[Batch]:
    from minitf.analysis.forward import n_rows, rows_of

    found, left = [], n
    for batch in batches:
        if left <= 0:
            break
        found.append(rows_of(batch, 0, left) if n_rows(batch) > left else batch)
        left -= n_rows(batch)
    return found


def health_curves(metrics: Sequence[Mapping[str, float]]) -> dict[str, dict[int, list[tuple[float, float]]]]:
    """Measure -> layer -> points, of what `callbacks=health` has logged as health/MEASURE.PLACE.

    Args:
        metrics: rows of metrics.csv.
    """
    curves: dict[str, dict[int, list[tuple[float, float]]]] = {}
    for row in metrics:
        for name, value in row.items():
            if not name.startswith(HEALTH):
                continue
            what, _, number = name.removeprefix(HEALTH).rpartition(".")
            what, _, kind = what.rpartition(".") if what.rpartition(".")[2] in KINDS else (what, "", "")
            label = f"{what} ({kind})" if kind else what
            curves.setdefault(label, {}).setdefault(int(number), []).append((row["step"], value))
    return curves
