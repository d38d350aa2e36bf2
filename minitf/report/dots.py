"""Points in rows as plain numbers that a template draws as SVG: one row a condition, one point a seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from minitf.report.curves import LOG_ABOVE, Axis

WIDTH, ROW, SIDE, BOTTOM = 360, 44, 14, 24
NAME_Y, POINT_Y = 13, 29  # of a name and of the points, inside a row
SHIFT = 4  # pixels between points of neighbouring seeds, so that equal values can be seen
LONGEST = 56  # characters of a name


def dots(rows: Sequence[Mapping[str, Any]], zero: bool = False) -> dict[str, Any]:
    """A picture of rows of points.

    Args:
        rows: each with `name`, `values` (None: no number), `notes` (a text for each value), and perhaps `mean`,
            `band` (low, high), `bounds` (numbers) and `interval` (low, high).
        zero: 0 belongs into the picture, and has a line.

    Returns:
        sizes, `ticks`, `zero` (its place or None), `log`, and `rows` of places in pixels.
    """
    marks = [m for row in rows for m in _marks(row)] + ([0.0] if zero else [])
    low, high = (min(marks), max(marks)) if marks else (0.0, 1.0)
    log = not zero and low > 0 and high / low >= LOG_ABOVE
    x = Axis(*_ends(low, high, log), SIDE, WIDTH - SIDE, log)
    height = ROW * len(rows) + BOTTOM
    return {
        "width": WIDTH,
        "height": height,
        "bottom": height - BOTTOM,
        "ends": [SIDE, WIDTH - SIDE],
        "ticks": x.ticks(),
        "zero": round(x(0.0), 1) if zero else None,
        "log": log,
        "rows": [_row(row, i * ROW, x) for i, row in enumerate(rows)],
    }


def _marks(row: Mapping[str, Any]) -> list[float]:
    numbers = [*row["values"], *(row.get("band") or ()), *row.get("bounds", ()), *(row.get("interval") or ())]
    return [v for v in numbers if v is not None and math.isfinite(v)]


def _ends(low: float, high: float, log: bool) -> tuple[float, float]:
    if log:
        return low / 1.3, high * 1.3
    room = (high - low) * 0.05 or abs(high) * 0.05 or 0.5
    return low - room, high + room


def _row(row: Mapping[str, Any], top: int, x: Axis) -> dict[str, Any]:
    middle = top + POINT_Y
    lanes = (len(row["values"]) - 1) / 2
    step = min(SHIFT, 8 / lanes) if lanes else 0

    def span(name: str) -> list[float] | None:
        ends = row.get(name)
        return [round(x(v), 1) for v in ends] if ends and None not in ends else None

    points = [
        {"x": round(x(value), 1), "y": round(middle + (i - lanes) * step, 1), "note": row["notes"][i]}
        for i, value in enumerate(row["values"])
        if value is not None
    ]
    name = row["name"]
    return {
        "name": name if len(name) <= LONGEST else f"{name[: LONGEST // 2 - 1]}…{name[-LONGEST // 2 :]}",
        "full": name,
        "name_y": top + NAME_Y,
        "top": middle - 10,
        "middle": middle,
        "points": points,
        "mean": None if row.get("mean") is None else round(x(row["mean"]), 1),
        "band": span("band"),
        "interval": span("interval"),
        "bounds": [round(x(v), 1) for v in row.get("bounds", ())],
        "without": [row["notes"][i] for i, value in enumerate(row["values"]) if value is None],
    }
