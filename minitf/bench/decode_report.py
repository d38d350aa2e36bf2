"""Tables of bench=decode, and whether all contenders wrote the same."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from torch import Tensor

from minitf.bench.timing import Timing, ratios

SAME = "the same"
SPEED_LEGEND = """\
  ms per step: a token for each row, median [lowest, highest] of the rounds; tokens/s: of all rows, at the median
  times as fast as: in each round the column's time by the row's, median [lowest, highest]; above 1 the row is faster"""
CONTEXT_LEGEND = """\
  ms per token: median of the rounds; growth: in each round the last time by the first, median [lowest, highest]"""


def speed_table(timings: Sequence[Timing], bases: Sequence[str]) -> str:
    """All contenders, the fastest first, and how many times as fast as each of the bases they are, round by round."""
    by_name = {t.name: t for t in timings}
    lines = [
        f"{'':<72}times as fast as",
        f"{'contender':<38}{'ms per step':<22}{'tokens/s':>8}    " + "".join(f"{base:<30}" for base in bases).rstrip(),
    ]
    for timing in sorted(timings, key=lambda t: t.median):
        speeds = "".join(f"{summary(ratios(by_name[base], timing)):<30}" for base in bases)
        ms = summary([1e3 * s for s in timing.seconds])
        lines.append(f"{timing.name:<38}{ms:<22}{timing.tokens / timing.median:>8,.0f}    {speeds}".rstrip())
    return "\n".join([*lines, SPEED_LEGEND])


def context_table(contexts: Sequence[int], times: Mapping[str, Sequence[Timing]]) -> str:
    """Median ms per token at each context, and the growth from the first to the last, round by round."""
    head = f"{'ms per token at context':<30}" + "".join(f"{n:>8}" for n in contexts)
    lines = [f"{head}   growth from {contexts[0]} to {contexts[-1]}"]
    for name, timings in times.items():
        medians = "".join(f"{1e3 * t.median:>8.2f}" for t in timings)
        lines.append(f"{name:<30}{medians}   {summary(ratios(timings[-1], timings[0]))}")
    return "\n".join([*lines, CONTEXT_LEGEND])


def differences(texts: Mapping[str, Tensor], base: str) -> dict[str, str]:
    """For each contender SAME, or where its text (B,N) leaves that of the base."""
    found = {}
    for name, ids in texts.items():
        differs = ids != texts[base]
        token = int(differs.any(0).int().argmax()) + 1
        rows = int(differs.any(1).sum())
        found[name] = f"differs in {rows} row(s), from token {token} on" if rows else SAME
    return found


def summary(values: Sequence[float]) -> str:
    """Median and range."""
    return f"{statistics.median(values):.2f} [{min(values):.2f}, {max(values):.2f}]"
