"""Edit distance, and the error rates that are made of it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from minitf.errors import DataError


def edit_distance(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """The least number of insertions, deletions and substitutions that turn one sequence into another.

    Args:
        a, b: compared element by element; a text is a sequence of characters.

    Source: Wagner and Fischer 1974, with one row of the table at a time.
    """
    above = list(range(len(b) + 1))  # distances of the empty beginning of a to every beginning of b
    for i, x in enumerate(a, start=1):
        row = [i]
        for j, y in enumerate(b, start=1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (x != y)))
        above = row
    return above[-1]


@dataclass(frozen=True)
class ErrorSums:
    """What error rates are made of; sums over rows.

    Args:
        edits: distances to the nearest reference.
        n_tokens: tokens of these references.
        n_wrong: rows that are none of their references.
        n_rows: rows.
    """

    edits: int
    n_tokens: int
    n_wrong: int
    n_rows: int

    @property
    def token_error_rate(self) -> float:
        """Edits per token of the references; can be above 1. Of phones it is the phone error rate, of words the WER."""
        return self.edits / self.n_tokens

    @property
    def sequence_error_rate(self) -> float:
        """Share of rows that are not right as a whole. Of words spelt in phones it is the word error rate."""
        return self.n_wrong / self.n_rows


def error_sums(written: Sequence[Sequence[Hashable]], references: Sequence[Sequence[Sequence[Hashable]]]) -> ErrorSums:
    """Compare each row with the nearest of its references: the one with the fewest edits, of equals the first.

    Args:
        written: rows.
        references: for each row all that count as right, at least one.

    Raises:
        DataError: there are no rows, a row without a reference, or nothing but empty references.
    """
    edits = n_tokens = n_wrong = 0
    for row, known in zip(written, references, strict=True):
        if not known:
            raise DataError("a row has no reference: nothing says what would be right")
        distance, length = min(((edit_distance(row, right), len(right)) for right in known), key=lambda pair: pair[0])
        edits, n_tokens, n_wrong = edits + distance, n_tokens + length, n_wrong + (distance > 0)
    if not n_tokens:
        raise DataError("the references hold no token, so there is no error rate")
    return ErrorSums(edits, n_tokens, n_wrong, len(written))
