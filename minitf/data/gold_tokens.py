"""Links between characters of Python source as links between its tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from minitf.data.gold_python import Link, python_links
from minitf.data.offsets import TokenSpans
from minitf.data.tokenizer import BaseTokenizer

PYTHON_ROLES = ("bracket", "next_bracket", "identifier", "next_identifier", "after_identifier", "def", "class")


def python_gold(text: str, ids: Sequence[int], tokenizer: BaseTokenizer) -> dict[str, np.ndarray] | None:
    """Which token must be read at which token of a Python file, by role.

    A role speaks of the token that the model has just read; with `next_` of the one that it is to predict there.

    bracket             at a token that holds a closing bracket: the opening one
    next_bracket        at the token before it: the opening one, for who predicts that it closes
    identifier          at the last token of a name: all tokens of the same name where it stood last
    next_identifier     at the token before a name: the first token of the same name where it stood last
    after_identifier    at the last token of a name: the token after the same name where it stood last, which is what
                        induction predicts next
    def, class          at every token that begins inside of a function or class, its signature included: the keyword
                        of the innermost one

    A token may hold more than what is spoken of, such as `self.` or `))`, or a part of it. It counts as soon as it
    holds any of its characters; a token with several closing brackets has several answers. What stands in one token
    with its own answer has none. For after_identifier both names must end where their last token ends.

    Args:
        text: of a file, see `python_links`.
        ids: its tokens, without bos.
        tokenizer: made them.

    Returns:
        int64 (n, 2) for each of PYTHON_ROLES: number of the asking token, number of the answering one, each pair once.
        Number -1 is the bos before the text. None where `python_links` gives None.
    """
    links = python_links(text)
    if links is None:
        return None
    spans = TokenSpans(text, ids, tokenizer)
    pairs: dict[str, set[tuple[int, int]]] = {role: set() for role in PYTHON_ROLES}
    for link in links:
        if link.role in ("bracket", "identifier"):
            for role, query, source in _pairs(link, spans):
                pairs[role].add((query, source))
    for role in ("def", "class"):
        pairs[role].update(_inside([link for link in links if link.role == role], spans))
    return {role: np.array(sorted(found), dtype=np.int64).reshape(-1, 2) for role, found in pairs.items()}


def _pairs(link: Link, spans: TokenSpans) -> Iterator[tuple[str, int, int]]:
    """(role, asking, answering) of a bracket or a name."""
    first, end = spans.of(*link.query)
    source, source_end = spans.of(*link.source)
    if source_end > first:  # in one token
        return
    if link.role == "bracket":
        for answer in range(source, source_end):
            yield "bracket", end - 1, answer
            yield "next_bracket", first - 1, answer
        return
    for answer in range(source, source_end):
        yield "identifier", end - 1, answer
    yield "next_identifier", first - 1, source
    if spans.ends[end - 1] == link.query[1] and spans.ends[source_end - 1] == link.source[1]:
        yield "after_identifier", end - 1, source_end


def _inside(links: list[Link], spans: TokenSpans) -> Iterator[tuple[int, int]]:
    """Of functions or of classes; a later link counts instead of an earlier one."""
    owner = np.full(len(spans.starts), -1)
    for number, link in enumerate(links):
        first, end = np.searchsorted(spans.starts, link.query, side="left")
        owner[first:end] = number
    sources = [spans.of(*link.source) for link in links]
    for query in np.flatnonzero(owner >= 0).tolist():
        for answer in range(*sources[owner[query]]):
            yield query, answer
