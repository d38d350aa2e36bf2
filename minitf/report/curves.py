"""Curves as plain numbers that a template draws as SVG: small, readable without scripts, the same bytes every time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT = 420, 190
LEFT, RIGHT, TOP, BOTTOM = 52, 40, 10, 26  # room for numbers at the axes and names at the ends
NAME = 11  # pixels of height that a name at the end of a curve takes
LOG_ABOVE = 1000  # largest over smallest value from which a logarithmic axis is the readable one
SKEWED = 4  # last step over the middle one from which steps are taken to be on a log schedule
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    """A range of values along some pixels.

    Args:
        low, high: values at the ends.
        start, end: pixels there.
        log: the logarithm of a value is what is even.
        plus: is added before the logarithm, 1 for steps that begin with 0.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    plus: float = 0.0

    def __call__(self, value: float) -> float:
        low, high, value = (math.log10(v + self.plus) if self.log else v for v in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[dict[str, Any]]:
        """Round values inside, with their places and texts."""
        if self.log and self.plus:
            values = [0.0, *_powers(1, self.high)] if self.low == 0 else _powers(self.low, self.high)
        else:
            values = _powers(self.low, self.high) if self.log else _round_values(self.low, self.high)
        return [{"at": round(self(v), 1), "text": short(v)} for v in values]


def picture(series: Mapping[str, Points], low: float | None = None, high: float | None = None) -> dict[str, Any]:
    """Curves in one frame.

    Args:
        series: name -> points; values that are not finite leave a gap.
        low, high: ends of the upright axis; None: as the values are, on a logarithmic axis if they span three powers.
            The other axis is logarithmic where most steps are early ones.

    Returns:
        sizes, `lines` (name, path, last point), `x` and `y` (ticks), `log`, and `table`: rows of the twin in numbers.
    """
    finite = {name: [(x, y) for x, y in points if math.isfinite(y)] for name, points in series.items()}
    xs = [x for points in finite.values() for x, _ in points] or [0.0]
    ys = [y for points in finite.values() for _, y in points] or [0.0]
    log = low is None and high is None and min(ys) > 0 and max(ys) / min(ys) >= LOG_ABOVE
    y_low, y_high = _range(min(ys) if low is None else low, max(ys) if high is None else high, log)
    steps = sorted(set(xs))
    log_x = steps[0] >= 0 and len(steps) > 4 and SKEWED * steps[len(steps) // 2] < steps[-1]
    x = Axis(*_range(min(xs), max(xs), False, 0), LEFT, WIDTH - RIGHT, log_x, 1.0 if log_x else 0.0)
    y = Axis(y_low, y_high, HEIGHT - BOTTOM, TOP, log)
    lines = []
    for i, (name, points) in enumerate(series.items()):
        last = finite[name][-1] if finite[name] else None
        lines.append(
            {
                "name": name,
                "colour": round(i * 7 / max(len(series) - 1, 1)),
                "path": _path(thinned(points, x), x, y),
                "last": last and [round(x(last[0]), 1), round(y(last[1]), 1)],
            }
        )
    _part_names(lines)
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "frame": [LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM],
        "x_range": [x.low, x.high],
        "x_log": log_x,
        "lines": lines,
        "x": x.ticks(),
        "y": y.ticks(),
        "log": log,
        "table": _table(series),
    }


def _part_names(lines: list[dict[str, Any]]) -> None:
    """Heights of the names at the ends, far enough from each other to be read, in the order of the curves."""
    ends = sorted((line for line in lines if line["last"]), key=lambda line: line["last"][1])
    room = min(NAME, (HEIGHT - BOTTOM - TOP) / max(len(ends), 1))
    lowest = TOP - room
    for line in ends:
        lowest = max(line["last"][1], lowest + room)
        line["end"] = lowest
    highest = HEIGHT - BOTTOM + room
    for line in reversed(ends):
        highest = line["end"] = round(min(line["end"], highest - room), 1)


def thinned(points: Points, axis: Axis) -> list[tuple[float, float]]:
    """At most four points for each pixel column: the first, the least, the largest and the last; gaps stay.

    Args:
        points: in the order of x.
        axis: of x.
    """
    columns: dict[int, list[tuple[float, float]]] = {}
    for point in points:
        columns.setdefault(round(axis(point[0])), []).append(point)
    found = []
    for column in columns.values():
        if len(column) > 4 and all(math.isfinite(y) for _, y in column):
            least, most = min(column, key=lambda p: p[1]), max(column, key=lambda p: p[1])
            column = [p for i, p in enumerate(column) if i in (0, len(column) - 1) or p in (least, most)][:4]
        found += column
    return found


def short(value: float) -> str:
    """A number at an axis: 0, 0.25, 400, 20k, 1e-5."""
    if value and (abs(value) < 1e-3 or abs(value) >= 1e6):
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value / 1000:g}k" if abs(value) >= 10_000 else f"{value:g}"


def _path(points: Points, x: Axis, y: Axis) -> str:
    parts, pen = [], "M"
    for px, py in points:
        if not math.isfinite(py):
            pen = "M"
            continue
        parts.append(f"{pen}{x(px):.1f} {y(py):.1f}")
        pen = "L"
    if len(parts) == 1:  # one point alone is no line; a round cap makes it a dot
        parts.append("h0.01")
    return "".join(parts)


def _range(low: float, high: float, log: bool, margin: float = 0.04) -> tuple[float, float]:
    if log:
        return low, high
    if low == high:
        return low - 0.5, high + 0.5
    room = (high - low) * margin
    return low - room, high + room


def _powers(low: float, high: float) -> list[float]:
    powers = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    return [10.0**p for p in powers][:: max(1, len(powers) // 5)]


def _round_values(low: float, high: float) -> list[float]:
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough)
    return [round(i * step, 12) for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _table(series: Mapping[str, Points], most: int = 12) -> dict[str, Any]:
    """Values of every series at some x that are spread evenly; None where a series has no point there."""
    xs = sorted({x for points in series.values() for x, _ in points})
    if len(xs) > most:
        xs = [xs[round(i * (len(xs) - 1) / (most - 1))] for i in range(most)]
    values = [dict(points) for points in series.values()]
    return {"names": list(series), "rows": [[x, *[v.get(x) for v in values]] for x in xs]}
