"""Small real data sets of items: each is read as symbols, and one answer is right.

One file a data set, which gives the items of both splits; `encode` makes arrays of them, `module.ItemData` batches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from minitf.errors import ConfigError

Columns = Sequence[int]


@dataclass(frozen=True)
class Item:
    """One example.

    Args:
        source: what is read, symbol by symbol.
        answer: what is asked for: the symbols to be written ("seq2seq"), one for each symbol of the source ("tag"), or
            the name of the class alone ("classify").
        gold: for each role and each symbol of the answer the columns of the source that answer it.
        others: further answers that count as right.
    """

    source: Sequence[str]
    answer: Sequence[str]
    gold: Mapping[str, Sequence[Columns]] = field(default_factory=dict)
    others: Sequence[Sequence[str]] = ()


@dataclass(frozen=True)
class Split:
    """Both splits of a data set.

    Args:
        train, val: no source of one is in the other.
        record: what a run keeps: source, licence, sizes, versions.
        baselines: scores of simpler models on `val`, by name.
    """

    train: list[Item]
    val: list[Item]
    record: dict[str, Any]
    baselines: dict[str, float]


class ItemSource:
    """The interface of every data set of items.

    Attributes:
        name: of the data set.
        gives: "seq2seq", "tag" or "classify", see `minitf.data.base.BaseData`.
        roles: of its gold.
        example: a text that `read` takes.
        between: what stands between the symbols of an answer where people read it.
    """

    name: ClassVar[str]
    gives: ClassVar[str]
    roles: ClassVar[tuple[str, ...]] = ()
    example: ClassVar[str] = "abc"
    between: ClassVar[str] = ""

    def depends_on(self) -> dict[str, Any]:
        """Plain values: with the same ones the items are the same. Raises DataError where the items cannot be had."""
        raise NotImplementedError

    def read(self, text: str) -> list[str]:
        """The symbols of a text that somebody types, as those of an item's source."""
        return list(text)

    def split(self, progress: Callable[[str], object]) -> Split:
        """Read the items and split them. Raises DataError."""
        raise NotImplementedError


def in_val(key: str, one_in: int) -> bool:
    """Whether what has this key belongs to validation, as one in so many does; the same everywhere and for ever."""
    return int.from_bytes(hashlib.blake2b(key.encode("utf-8"), digest_size=8).digest(), "big") % one_in == 0


def check_share(name: str, value: int) -> int:
    """`value` itself. Raises ConfigError unless one in so many can be validation."""
    if not isinstance(value, int) or isinstance(value, bool) or not 2 <= value <= 1000:
        raise ConfigError(f"data.source.{name} ({value!r}) must be a whole number from 2 to 1000: one in so many")
    return value
