"""Rows of cells as lines of text."""

from collections.abc import Iterator, Sequence


def lines(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Each row as a line; cells of a column are as wide as the widest.

    Args:
        rows: of equal length.
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        yield ("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()
