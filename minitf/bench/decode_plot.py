"""The plot of bench=decode: time per token, and bytes, against the number of tokens before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from minitf.bench.decode_cache import CacheRow
from minitf.bench.timing import Timing


def draw(
    folder: Path, contexts: Sequence[int], times: Mapping[str, Sequence[Timing]], rows: Sequence[CacheRow]
) -> list[Path]:
    """Write decode.png and decode.svg.

    Args:
        folder: where to.
        contexts: numbers of tokens.
        times: per contender one timing for each of them.
        rows: bytes of every cache.

    Returns:
        The two files.
    """
    # neither pyplot nor a display: nothing global is changed
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for name, timings in times.items():
        (line,) = left.plot(contexts, [1e3 * t.median for t in timings], marker="o", label=name)
        low, high = ([1e3 * side(t.seconds) for t in timings] for side in (min, max))
        left.fill_between(contexts, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    left.set(title="time per token: median and range", ylabel="ms per token")
    for i, row in enumerate(sorted(rows, key=lambda row: -row.found[-1])):
        color, marker = f"C{i % 10}", MARKERS[i % len(MARKERS)]
        if row.predicted is not None:
            right.plot(row.lengths, [n / MIB for n in row.predicted], color=color, linewidth=1)
        # large and hollow, the later the smaller, so that equal ones are seen behind each other
        style = {"marker": marker, "markersize": max(11 - i, 4), "fillstyle": "none", "linestyle": "none"}
        right.plot(
            row.lengths,
            [n / MIB for n in row.found],
            color=color,
            label=f"{row.name}: {row.found[-1] / MIB:.1f}",
            **style,
        )
    right.set(title="all layers' caches, one row (lines: formula, marks: measured)", ylabel="MiB")
    for axes in (left, right):
        axes.set(xlabel="tokens before (context)", xticks=list(contexts))
        axes.set_ylim(bottom=0)
        axes.tick_params(axis="x", labelrotation=45)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    paths = [folder / f"decode.{ending}" for ending in ("png", "svg")]
    for path in paths:
        figure.savefig(path, dpi=120)
    return paths


MARKERS = "os^vDhdp"
MIB = 1024**2
