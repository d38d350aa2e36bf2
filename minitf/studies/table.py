"""Judged studies as text: one in full, many in a table, a folder of verdicts."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from minitf.files import atomic_file, write_json
from minitf.studies.item import Item, as_data, short
from minitf.studies.judgement import NO_CLAIM, Judgement
from minitf.studies.result import Result
from minitf.studies.store import safe_name
from minitf.studies.study import Study

WIDTH = 120
MOST_SEEDS = 7  # side by side; further ones go below
COMPARED = (
    "Comparisons, paired by seed",
    "  mean difference [bootstrap interval], p of the sign-flip test, Hedges' g; detectable: what so many seeds with",
    "  this spread would find in four of five cases",
)
NAME = 36  # characters of a cell's name beside its numbers
COLUMNS = {"study": 16, "claim": 34, "verdict": 11, "deciding numbers": 34, "seeds": 5, "CPU s": 6}


def text(study: Study, results: Sequence[Result], judgement: Judgement, command: str) -> str:
    """One study for a terminal: what was asked, every seed's value, the comparisons, the verdict.

    Args:
        study, results, judgement: of it.
        command: that runs it again.
    """
    data = as_data(Item(study, results, judgement, command))
    told = [f"Study {data['name']}"]
    for name in ("question", "claim", "source"):
        told += _wrapped(f"  {name:9}", data[name]) if data[name] else []
    if data["covers"]:
        told += _wrapped("  decides  ", ", ".join(data["covers"]))
    for metric in data["metrics"]:
        told += ["", f"{metric['name']}{' (decides)' if metric['decides'] else ''}"]
        told += _wrapped("  ", metric["meaning"]) if metric["meaning"] else []
        told += _values(metric, data["seeds"])
    if data["expectations"]:
        told += ["", "Expected"]
        for e in data["expectations"]:
            when = f" (when {e['when']})" if e["when"] else " (control)" if e["control"] else ""
            told += _wrapped(f"  {e['outcome']:11}", f"{e['text']}{when}: {e['why']}")
    if outside := data["outside"]:
        told += ["", "Outside what was found before (the mean is more than half the earlier range, or 2 %, beyond it)"]
        for line in outside:
            told += _wrapped("  ", line)
    if data["comparisons"]:
        told += ["", *COMPARED]
        for c in data["comparisons"]:
            told += _wrapped("  ", f"{c['metric']}: {' - '.join(c['cells'])}")
            told += _joined("      ", numbers(c))
    if data["effects"]:
        told += ["", f"What each factor does to {data['metric']}, and two together beyond that, paired by seed"]
        for c in data["effects"]:
            told += _wrapped("  ", c["of"] + " - ".join(c["cells"]))
            told += _joined("      ", numbers(c))
    if data["problems"]:
        told += ["", "Not whole", *(line for problem in data["problems"] for line in _wrapped("  ", problem))]
    if data["verdict"] == NO_CLAIM:
        told += ["", *_wrapped("Answer: ", data["why"])]
    else:
        told += ["", *_wrapped("Verdict: ", f"{data['verdict']} ({data['why']})")]
    told.append(f"{_count(len(data['seeds']), 'seed')}, {data['seconds']:.0f} s of CPU: {command}")
    return "\n".join(told) + "\n"


def numbers(c: dict[str, Any]) -> list[str]:
    """What is known of one comparison, number by number.

    Args:
        c: as `as_data` gives it.
    """
    if not c["differences"]:
        return ["no seed has both"]
    if len(c["differences"]) == 1:
        return [f"difference {c['differences'][0]:+.4g}", "one seed: no statistics"]
    told = [
        f"differences {', '.join(f'{d:+.4g}' for d in c['differences'])}",
        f"mean {c['mean']:+.4g}" + (f" [{c['low']:+.4g}, {c['high']:+.4g}]" if c["low"] is not None else ""),
        f"p {c['p']:.2g} (corrected {c['p_holm']:.2g}, least possible {c['least_p']:.2g})",
        f"effect {c['effect']:+.3g}" if c["effect"] is not None else f"effect: {c['no_effect']}",
    ]
    if c["detectable"] is not None:
        told.append(f"detectable {short(c['detectable'])}")
    told.append("no overlap" if c["apart"] else "conditions overlap")
    return told


def overview(items: Sequence[Item]) -> str:
    """Many studies in one table for a terminal, with the command of each.

    Args:
        items: the studies.
    """
    told = [_line(list(COLUMNS)), _line(["-" * width for width in COLUMNS.values()])]
    for row in map(_row, items):
        cells = [_pieces(cell, width) for cell, width in zip(row[:-1], COLUMNS.values(), strict=True)]
        height = max(map(len, cells))
        told += [_line([cell[i] if i < len(cell) else "" for cell in cells]) for i in range(height)]
        told += ["    " + row[-1], ""]
    return "\n".join([*told, summary(items)]) + "\n"


def markdown(items: Sequence[Item]) -> str:
    """Many studies as a table in Markdown.

    Args:
        items: the studies.
    """
    rows = [[*COLUMNS, "command"], ["---"] * (len(COLUMNS) + 1)]
    for row in map(_row, items):
        *cells, command = [cell.replace("|", "\\|") for cell in row]
        # what a reader of Markdown would take for a tag, such as a cell named <none>, is text
        cells = [re.sub(r"<(?=[A-Za-z/!?])", r"\\<", cell).replace("\n", "<br>") for cell in cells]
        rows.append([*cells, f"`{command}`".replace("\n", "<br>")])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def summary(items: Sequence[Item]) -> str:
    """How many studies had which verdict, and the time they took, in one line.

    Args:
        items: the studies.
    """
    verdicts = [item.judgement.verdict for item in items]
    counts = ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts))
    seconds = sum(item.judgement.seconds for item in items)
    told = f"{_count(len(items), 'study')}: {counts}; {seconds:.0f} s of CPU"
    figures = [f for item in items for f in item.judgement.figures]
    if not figures:
        return told
    outside = [f for f in figures if f.place == "outside"]
    places = ", ".join(f"{sum(f.place == place for f in figures)} {place}" for place in ("inside", "near", "outside"))
    return (
        f"{told}\n{_count(len(figures), 'figure')} found before, by the mean here: {places}; of those outside "
        f"{sum(f.apart for f in outside)} with all seeds, {sum(bool(f.why) for f in outside)} explained"
    )


def folder(items: Sequence[Item], path: str | Path) -> list[Path]:
    """Write verdicts.json, verdicts.md and NAME.txt of each study into a folder; older ones are replaced.

    Args:
        items: the studies.
        path: the folder; it is made if it is missing.

    Returns:
        the files.

    Raises:
        OSError: a file cannot be written.
    """
    path = Path(path)
    texts = {f"{safe_name(i.study.name)}.txt": text(i.study, i.results, i.judgement, i.command) for i in items}
    texts["verdicts.md"] = markdown(items)
    for name, content in texts.items():
        with atomic_file(path / name) as file:
            file.write(content.encode("utf-8"))
    write_json(path / "verdicts.json", [as_data(item) for item in items])
    return [path / name for name in ("verdicts.json", *texts)]


def _values(metric: dict[str, Any], seeds: Sequence[int]) -> Iterator[str]:
    """Rows of cells; the mean and what was found before stand behind the last seeds."""
    for start in range(0, len(seeds), MOST_SEEDS):
        part = slice(start, start + MOST_SEEDS)
        last = start + MOST_SEEDS >= len(seeds)
        before = last and any(row["reference"] for row in metric["rows"])
        ends = [*(["mean"] if last else []), *(["found before"] if before else [])]
        rows = [["cell", *(f"seed {seed}" for seed in seeds[part]), *ends]]
        for row in metric["rows"]:
            cells = [_cut(row["cell"]), *row["shown"][part], *([short(row["mean"])] if last else [])]
            rows.append([*cells, *([_reference(row)] if before else [])])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            shown = [
                cell.ljust(width) if i == 0 or (before and i == len(row) - 1) else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            yield ("  " + "  ".join(shown)).rstrip()


def _reference(row: dict[str, Any]) -> str:
    if not row["reference"]:
        return ""
    return f"{' .. '.join(map(short, row['reference']))} {row['place']}"


def _row(item: Item) -> list[str]:
    data = as_data(item)
    shown = data["verdict"] + (f": {data['why']}" if data["verdict"] == "supported under condition" else "")
    numbers = "\n".join(data["deciding"] or [data["why"]])
    seconds = f"{data['seconds']:.0f}"
    return [data["name"], data["claim"], shown, numbers, str(len(data["seeds"])), seconds, item.command]


def _line(cells: Sequence[str]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, COLUMNS.values(), strict=True)).rstrip()


def _pieces(cell: str, width: int) -> list[str]:
    return [piece for line in cell.split("\n") for piece in textwrap.wrap(line, width) or [""]]


def _wrapped(start: str, content: str) -> list[str]:
    room = " " * len(start) if len(start) < 20 else "  "
    return textwrap.wrap(content, WIDTH, initial_indent=start, subsequent_indent=room, break_on_hyphens=False) or [
        start
    ]


def _joined(start: str, parts: Sequence[str]) -> list[str]:
    """Parts that stay whole where they fit, as few lines as they need."""
    told = [""]
    for part in parts:
        if told[-1] and len(start) + len(told[-1]) + len(part) + 3 > WIDTH:
            told.append("")
        told[-1] += ("; " if told[-1] else "") + part
    return [piece for line in told for piece in _wrapped(start, line + ("" if line is told[-1] else ";"))]


def _cut(name: str) -> str:
    return name if len(name) <= NAME else f"{name[: NAME // 2 - 1]}…{name[-NAME // 2 :]}"


def _count(n: int, word: str) -> str:
    return f"{n} {word if n == 1 else 'studies' if word == 'study' else word + 's'}"
