"""Numbers as cells, and rows of cells as lines of text."""

from collections.abc import Iterator, Sequence


def signed(value: float, digits: int = 3) -> str:
    """With its sign; what rounds to nothing is +0."""
    return f"{round(value, digits) + 0.0:+.{digits}f}"


def signed_range(values: Sequence[float]) -> str:
    """Lowest to highest, with signs; one value alone, "none" where there is none."""
    ends = [signed(end(values)) for end in (min, max)] if values else ["none"]
    return " to ".join(dict.fromkeys(ends))


def lines(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Each row as a line; cells of a column are as wide as the widest.

    Args:
        rows: of equal length.
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        yield ("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()
