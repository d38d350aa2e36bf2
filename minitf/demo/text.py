"""Plain text that lines up, also with wide characters."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence

from torch import Tensor

WIDTH = 110
SECOND = "\0"  # stands for the second column of a wide character


def width(text: str) -> int:
    """Columns that a terminal needs: a Chinese character takes two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def pad(text: str, columns: int, right: bool = False) -> str:
    """`text` filled up to so many columns; `right` puts it to the right."""
    fill = " " * (columns - width(text))
    return fill + text if right else text + fill


def table(head: Sequence[str] | None, rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Columns that line up.

    Args:
        head: names of the columns; None: no line for them.
        rows: texts of the cells.
        left: so many columns stand to the left, the others to the right.
    """
    lines = list(rows) if head is None else [head, *rows]
    widths = [max(map(width, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(pad(cell, w, right=i >= left) for i, (cell, w) in enumerate(zip(line, widths, strict=True))).rstrip()
        for line in lines
    )


def matrix(name: str, values: Tensor, rows: Sequence[str], columns: Sequence[str] = (), digits: int = 3) -> str:
    """A matrix with its name above; hidden scores (-inf) are shown as a dot.

    Args:
        name: what it is.
        values: (rows, columns).
        rows, columns: labels.
        digits: behind the point; whole numbers are shown without.
    """
    finite = values[values.isfinite()]
    whole = bool((finite == finite.round()).all())

    def cell(x: float) -> str:
        if x == float("-inf"):
            return "."
        return f"{x:.0f}" if whole else f"{x:.{digits}f}"

    body = [["  " + label, *map(cell, row)] for label, row in zip(rows, values.tolist(), strict=True)]
    return f"{name}\n{table(['', *columns] if columns else None, body)}"


def wrapped(text: str, columns: int = WIDTH, indent: str = "") -> list[str]:
    """Lines of at most so many columns."""
    # textwrap counts characters: a wide one gets a second, which is taken out afterwards
    counted = "".join(c + SECOND * (width(c) - 1) for c in " ".join(text.split()))
    lines = textwrap.wrap(counted, columns, initial_indent=indent, subsequent_indent=indent)
    return [line.replace(SECOND, "") for line in lines]


def paragraph(text: str) -> str:
    """A remark, wrapped to the width of a page."""
    return "\n".join(wrapped(text))
