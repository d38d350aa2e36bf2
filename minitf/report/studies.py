"""The page of judged studies: a table of verdicts, and for each study its points, numbers and command."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from minitf.report.curves import picture
from minitf.report.dots import dots
from minitf.report.page import write_page as write_any_page

TITLE = "Verdicts"


def write_page(items: Sequence[Mapping[str, Any]], path: str | Path, lang: str = "en", about: str = "") -> int:
    """Write one HTML page of judged studies; it loads nothing, and can be read with scripts off.

    Args:
        items: judged studies as plain data, see `minitf.studies.item.as_data`.
        path: the HTML file.
        lang: "en" or "zh"; questions, claims and settings stay as the studies have them.
        about: date and versions of the run, or whatever else shall stand at the top.

    Returns:
        bytes of the file.

    Raises:
        ConfigError: an unknown language, or a page above its budget.
        OSError: the file cannot be written.
    """
    verdicts = [item["verdict"] for item in items]
    data = {
        "names": [item["name"] for item in items],
        "verdicts": list(dict.fromkeys(verdicts)),
    }
    view = {
        "about": about,
        "studies": [_study(item) for item in items],
        "counts": [[verdict, verdicts.count(verdict)] for verdict in data["verdicts"]],
        "seconds": f"{sum(item['seconds'] for item in items):.0f}",
    }
    return write_any_page(path, "studies", TITLE, data, {}, lang, view)


def short(value: float | None) -> str:
    """A number for a table, four digits, with a real minus sign; "–" for none.

    Args:
        value: any.
    """
    if value is None:
        return "–"
    return f"{value:.4g}".replace("e-0", "e-").replace("e+0", "e").replace("-", "−")


def _study(item: Mapping[str, Any]) -> dict[str, Any]:
    metrics = []
    for metric in item["metrics"]:
        own = [c for c in item["comparisons"] if c["metric"] == metric["name"]]
        metrics.append(
            {
                "name": metric["name"],
                "meaning": metric["meaning"],
                "decides": metric["decides"],
                "rows": [_shown(row) for row in metric["rows"]],
                "picture": dots([_cell(row, metric["bounds"], item["seeds"]) for row in metric["rows"]]),
                "compared": [_numbers(c) for c in own],
                "courses": _courses(metric["courses"]),
                "differences": dots([_difference(c, item) for c in own], zero=True) if own else None,
            }
        )
    effects = [_numbers(c) for c in item["effects"]]
    return {**item, "seconds": f"{item['seconds']:.0f}", "metrics": metrics, "effects": effects}


def _courses(courses: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """A curve for each cell, called by its number, since names of cells are long; None where nothing was followed."""
    if not courses:
        return None
    series = {
        str(i): [(step, math.nan if value is None else value) for step, value in of["points"]]
        for i, of in enumerate(courses, 1)
    }
    return {"picture": picture(series), "names": [of["cell"] for of in courses]}


def _cell(row: Mapping[str, Any], bounds: Iterable[Mapping[str, Any]], seeds: Sequence[int]) -> dict[str, Any]:
    own = [b[end] for b in bounds if b["cell"] == row["cell"] for end in ("low", "high") if b[end] is not None]
    return {
        "name": row["cell"],
        "values": row["values"],
        "notes": [f"{seed}: {shown}" for seed, shown in zip(seeds, row["shown"], strict=True)],
        "mean": row["mean"],
        "band": row["reference"],
        "bounds": own,
    }


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    reference = " .. ".join(map(short, row["reference"])) if row["reference"] else ""
    return {
        "cell": row["cell"],
        "shown": [word.replace("-", "−") for word in row["shown"]],
        "mean": short(row["mean"]),
        "reference": reference,
        "place": row["place"],
    }


def _difference(c: Mapping[str, Any], item: Mapping[str, Any]) -> dict[str, Any]:
    bounds = []
    for e in item["expectations"]:
        if e["metric"] == c["metric"] and e["cells"] == c["cells"]:
            bounds += [-e["high"], e["high"]] if e["kind"] == "same" else [e["low"]]
    return {
        "name": " − ".join(c["cells"]),
        "values": c["differences"],
        "notes": [f"{seed}: {short(d)}" for seed, d in zip(c["seeds"], c["differences"], strict=True)],
        "mean": c["mean"],
        "interval": [c["low"], c["high"]],
        "bounds": bounds,
    }


def _numbers(c: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": c["of"] + " − ".join(c["cells"]),
        "differences": "  ".join(map(short, c["differences"])),
        "mean": short(c["mean"]),
        "interval": f"{short(c['low'])} .. {short(c['high'])}" if c["low"] is not None else "–",
        **{name: short(c[name]) for name in ("p", "p_holm", "least_p", "detectable")},
        "effect": short(c["effect"]) if c["effect"] is not None else c["no_effect"],
        "apart": c["apart"],
    }
