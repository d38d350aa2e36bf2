"""Where the answers stand in Python source: matching brackets, names seen before, the enclosing `def` and `class`."""

from __future__ import annotations

import ast
import bisect
import io
import keyword
import token
import tokenize
import warnings
from collections.abc import Iterator
from typing import NamedTuple

OPENS = {")": "(", "]": "[", "}": "{"}
Span = tuple[int, int]  # first character, and the one after the last


class Link(NamedTuple):
    """One thing that is answered by an earlier one, in characters.

    Args:
        role: "bracket": a closing bracket, and the opening one that it matches. "identifier": a name, and the same name
            where it stood last, whatever both denote. "def", "class": all that follows the keyword up to the end of
            the function or class, and the keyword; what is nested comes later in the list and counts instead.
        query: what asks.
        source: what answers.
    """

    role: str
    query: Span
    source: Span


def python_links(text: str) -> list[Link] | None:
    """Every link of a file; None if it is not the text of a Python module, so that nothing is known about it.

    Comments and strings hold no brackets and no names, also where an f-string has code in it: that it has some is seen
    only as from Python 3.12. Names are those that are no keyword; `match`, `case`, `type` and `_` count as names.

    Args:
        text: of the file, its line ends made line feeds.
    """
    if "\r" in text:  # ast and tokenize do not agree about such lines
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old files have escapes that are warned about
            tree = ast.parse(text)
        tokens = list(_tokens(text))
        return [*_brackets(tokens), *_names(tokens), *_enclosing(text, tree, tokens)]
    except (SyntaxError, ValueError, tokenize.TokenError, RecursionError, MemoryError):
        return None


class _Token(NamedTuple):
    is_name: bool
    text: str
    span: Span


def _tokens(text: str) -> Iterator[_Token]:
    """Names, keywords and operators with their characters, but for those in f-strings."""
    begins = _line_begins(text)
    depth = 0  # of f-strings
    for kind, string, (line, column), _, _ in tokenize.generate_tokens(io.StringIO(text).readline):
        name = token.tok_name[kind]
        depth += name.endswith("STRING_START")
        depth -= name.endswith("STRING_END")
        if not depth and kind in (token.NAME, token.OP):
            start = begins[line - 1] + column
            yield _Token(kind == token.NAME, string, (start, start + len(string)))


def _line_begins(text: str) -> list[int]:
    begins = [0]
    for line in text.split("\n"):
        begins.append(begins[-1] + len(line) + 1)
    return begins


def _brackets(tokens: list[_Token]) -> Iterator[Link]:
    waiting: list[_Token] = []
    for found in tokens:
        if found.text in OPENS.values():
            waiting.append(found)
        elif found.text in OPENS:
            opening = waiting.pop()  # there is one, and of this kind: the text has been parsed
            yield Link("bracket", found.span, opening.span)


def _names(tokens: list[_Token]) -> Iterator[Link]:
    last: dict[str, Span] = {}
    for found in tokens:
        if found.is_name and not keyword.iskeyword(found.text):
            if found.text in last:
                yield Link("identifier", found.span, last[found.text])
            last[found.text] = found.span


def _enclosing(text: str, tree: ast.Module, tokens: list[_Token]) -> Iterator[Link]:
    """Functions and classes, outer ones first."""
    lines, begins = text.split("\n"), _line_begins(text)

    def character(line: int, column: int) -> int:
        """Of a place as `ast` counts it: columns are UTF-8 bytes."""
        return begins[line - 1] + len(lines[line - 1].encode("utf-8")[:column].decode("utf-8"))

    kinds = {ast.FunctionDef: "def", ast.AsyncFunctionDef: "def", ast.ClassDef: "class"}
    keywords = {
        word: [found.span for found in tokens if found.is_name and found.text == word] for word in kinds.values()
    }
    found = []
    for node in ast.walk(tree):
        if role := kinds.get(type(node)):
            start, end = character(node.lineno, node.col_offset), character(node.end_lineno, node.end_col_offset)
            # the first one from the node's start on: `async` may stand before it
            spans = keywords[role]
            source = spans[bisect.bisect_left(spans, (start, start))]
            found.append(Link(role, (source[1], end), source))
    yield from sorted(found, key=lambda link: link.source)
