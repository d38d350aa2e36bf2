"""Gold for indentation in source code, from the tokens alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from minitf.analysis.forward import positions
from minitf.positions import segment

TokenBytes = Callable[[int], bytes]


def with_indentation(batch: Mapping[str, Tensor], token_bytes: TokenBytes) -> dict[str, Tensor]:
    """The batch and two more roles, "gold.indent" and "gold.next_indent", int64 (B,T,1), -1 where nothing is asked.

    indent        at the token that holds the first character of a line: the token that holds the first character of
                  the line before that is indented alike
    next_indent   at the token before: the same, for who predicts how far a line is indented

    Blank lines do not count, and lines inside of strings and brackets count like others. A row that begins in the
    middle of a file begins with a piece of a line, which does not count; one that begins with a special token does not.

    Args:
        batch: "ids" (B,T), and "pos" where rows are padded or packed.
        token_bytes: id -> its bytes, b"" of a special token; a tokenizer's method.
    """
    pos = positions(batch, "self")[0]
    found = {name: torch.full((*pos.shape, 1), -1) for name in ("indent", "next_indent")}
    for row, (ids, document) in enumerate(zip(batch["ids"].tolist(), segment(pos).tolist(), strict=True)):
        for start, end in _documents(document):
            for query, source in indentation_links([token_bytes(i) for i in ids[start:end]]):
                found["indent"][row, start + query, 0] = start + source
                found["next_indent"][row, start + query - 1, 0] = start + source
    return {**batch, **{f"gold.{name}": gold.to(pos.device) for name, gold in found.items()}}


def indentation_links(tokens: list[bytes]) -> list[tuple[int, int]]:
    """(asking, answering) token of each line that has an earlier one indented alike.

    Args:
        tokens: bytes of each; a first one without any says that the text begins here.
    """
    holder = [number for number, token in enumerate(tokens) for _ in token]  # of each byte
    text, begins_here = b"".join(tokens), bool(tokens) and not tokens[0]
    last: dict[bytes, int] = {}
    links = []
    place = 0
    for number, line in enumerate(text.split(b"\n")):
        body = line.lstrip(b" \t")
        if body.strip() and (number > 0 or begins_here):
            indent = line[: len(line) - len(body)]
            query = holder[place + len(indent)]
            if last.get(indent, query) != query:
                links.append((query, last[indent]))
            last[indent] = query
        place += len(line) + 1
    return links


def _documents(document: list[int]) -> Iterator[tuple[int, int]]:
    """First and last + 1 column of each document of a row; padding is none."""
    start = 0
    for column in range(1, len(document) + 1):
        if column == len(document) or document[column] != document[start]:
            if document[start] >= 0:
                yield start, column
            start = column
