"""Items as arrays of ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minitf.data.arrays import Rows
from minitf.data.items import Item
from minitf.data.windows import IGNORED

END, UNKNOWN = "[end]", "[unk]"
NO_SOURCE = -1  # where a role has no (further) column

Ids = Sequence[int] | np.ndarray


@dataclass(frozen=True)
class Symbols:
    """The tables of a data set.

    Args:
        read: symbol of each id that is read, and that is written where answers are sequences: one table for both.
        answers: symbol of each id of an answer.
    """

    read: list[str]
    answers: list[str]


def tables(gives: str, train: Sequence[Item], val: Sequence[Item]) -> Symbols:
    """The symbols of a data set: what training reads, and all answers that there are.

    In "seq2seq" the first one starts and ends what is written. What validation alone reads is UNKNOWN.
    """
    read = {symbol for item in train for symbol in item.source}
    given = {symbol for item in (*train, *val) for answer in (item.answer, *item.others) for symbol in answer}
    if gives == "seq2seq":
        table = [END, UNKNOWN, *sorted(read | given)]
        return Symbols(table, table)
    return Symbols([UNKNOWN, *sorted(read)], sorted(given))


def encode(gives: str, roles: Sequence[str], items: Sequence[Item], symbols: Symbols) -> Rows:
    """Arrays (n, ...) of small integers, padded on the right: those of a batch, but with lengths instead of positions.

    Args:
        gives: the kind of answer.
        roles: those of which there are columns.
        items: of one split.
        symbols: the ids of a symbol are its places in these tables.

    Returns:
        "seq2seq": "src", "src_len", "ids", "len", "targets"; "tag": "ids", "len", "targets"; "classify": "ids", "len",
        "label"; and for each role "gold.<role>" (n, T, K). Further right answers are in "others" (m, T), row after row,
        those of row i in the places others_of == i.
    """
    ids = {symbol: i for i, symbol in enumerate(symbols.read)}
    answers = {symbol: i for i, symbol in enumerate(symbols.answers)}
    unknown = ids[UNKNOWN]
    sources = [[ids.get(symbol, unknown) for symbol in item.source] for item in items]
    given = [[answers[symbol] for symbol in item.answer] for item in items]
    others = [(i, [answers[symbol] for symbol in other]) for i, item in enumerate(items) for other in item.others]
    found = arranged(gives, sources, given, answers.get(END), others)
    for role in roles:
        found[f"gold.{role}"] = _columns([item.gold[role] for item in items], found["ids"].shape[1])
    return found


def arranged(
    gives: str,
    sources: Sequence[Ids],
    given: Sequence[Ids],
    end: int | None = None,
    others: Sequence[tuple[int, Ids]] = (),
) -> Rows:
    """What `encode` returns, but for the gold, of rows of ids.

    Args:
        gives: the kind of answer.
        sources: what is read.
        given: the answers.
        end: starts and ends what is written, where answers are sequences.
        others: further right answers, each with the number of its row.
    """
    found: Rows = {}
    if gives == "seq2seq":
        found |= {"src": _padded(sources), "src_len": _lengths(sources)}
        found |= {"ids": _padded([[end, *answer] for answer in given]), "len": _lengths(given) + 1}
        found["targets"] = _padded([[*answer, end] for answer in given], IGNORED)
    else:
        found |= {"ids": _padded(sources), "len": _lengths(sources)}
        if gives == "tag":
            found["targets"] = _padded(given, IGNORED)
        else:
            found["label"] = np.array([label for (label,) in given], dtype=np.int16)
    found |= {"others": _padded([answer for _, answer in others], IGNORED)}
    found |= {"others_of": np.array([i for i, _ in others], dtype=np.int32)}
    return found


def _lengths(rows: Sequence[Ids]) -> np.ndarray:
    found = [len(row) for row in rows]
    return np.array(found, dtype=_small(max(found, default=0)))


def _padded(rows: Sequence[Ids], filler: int = 0) -> np.ndarray:
    width = max(map(len, rows), default=0)
    found = np.full((len(rows), width), filler, dtype=_small(max((max(row) for row in rows if len(row)), default=0)))
    for place, row in zip(found, rows, strict=True):
        place[: len(row)] = row
    return found


def _small(largest: int) -> type[np.signedinteger]:
    return np.int16 if largest < 2**15 else np.int32


def _columns(gold: Sequence[Sequence[Sequence[int]]], width: int) -> np.ndarray:
    """Columns (n, width, K) for each place of each row."""
    most = max((len(columns) for row in gold for columns in row), default=0)
    found = np.full((len(gold), width, max(most, 1)), NO_SOURCE, dtype=np.int16)
    for row, places in zip(found, gold, strict=True):
        for place, columns in zip(row, places, strict=False):  # the end has none
            place[: len(columns)] = columns
    return found
