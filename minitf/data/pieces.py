"""Long texts in pieces for the byte-level tokenizer: worked on in parallel, with bounded memory, and the same ids."""

import re
from collections.abc import Iterable, Iterator

_SAFE_CUT = re.compile(r"(?<=\S)\n(?=\S)")


def pieces(text: str, size: int = 1 << 16) -> Iterator[tuple[str, bool]]:
    """Cut a long text where no token can cross, so that its pieces are worked on in parallel: (piece, is the last).

    A line end between two non-spaces is such a place: of the pre-tokenizer's alternatives only white space
    matches a line end, and there it matches that one alone.
    """
    start = 0
    while cut := _SAFE_CUT.search(text, start + size):
        yield text[start : cut.start()], False
        start = cut.start()
    yield text[start:], True


def grouped(cut: Iterable[tuple[str, bool]], size: int = 1 << 21) -> Iterator[list[tuple[str, bool]]]:
    """Pieces in groups of about `size` characters: an encoding takes a hundred times the memory of its ids."""
    group: list[tuple[str, bool]] = []
    n = 0
    for piece in cut:
        group.append(piece)
        n += len(piece[0])
        if n >= size:
            yield group
            group, n = [], 0
    if group:
        yield group
