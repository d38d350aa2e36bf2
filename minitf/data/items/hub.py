"""Texts with a class, and pairs of texts, from the Hugging Face hub."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from minitf.data.hub import check_limit
from minitf.data.hub_access import Wanted
from minitf.data.hub_rows import VALIDATION, Column, HubRows, Row
from minitf.data.items import Item, ItemSource, Split
from minitf.data.items.guessing import most_frequent_class, naive_bayes
from minitf.errors import DataError

_WORD = re.compile(r"\w+")


class HubItems(ItemSource):
    """Rows of two columns of a data set of the hub.

    Its own splits are used: `train`, and `validation` or else `test`. Rows in which something is missing are left out,
    and so are those of training whose text validation has, too. Where fewer rows are wanted than there are, a hash of
    their text chooses them: data sets are often sorted by their classes.

    Args:
        wanted: the data set.
        columns: the one that is read, and the one that is asked for.
        max_train, max_val: rows of the splits at most; None is all.

    Raises ConfigError for a name that cannot be one, and for limits below 1.
    """

    def __init__(self, wanted: Wanted, columns: Sequence[Column], max_train: int | None, max_val: int | None) -> None:
        self.max_train, self.max_val = check_limit("max_train", max_train), check_limit("max_val", max_val)
        self._rows = HubRows(wanted, columns, self._chosen, ["items", max_train, max_val])
        self.name = wanted.dataset

    def depends_on(self) -> dict[str, Any]:
        wanted, names = self._rows.wanted, [column.name for column in self._rows.columns]
        limits = [self.max_train, self.max_val]
        return {"subset": wanted.subset, "commit": self._rows.read()["commit"], "columns": names, "limits": limits}

    def split(self, progress: Callable[[str], object]) -> Split:
        found = self._rows.read()
        if found["val"] is None:
            raise DataError(
                f"{self.name} has no split to measure on, only {found['splits'][0]}: one of {', '.join(VALIDATION)} is "
                "needed"
            )
        known = {text for text, _ in found["val"]}
        val = [self._item(*row) for row in found["val"]]
        train = [self._item(*row) for row in found["train"] if row[0] not in known]
        record = {
            "dataset": found["dataset"],
            "subset": self._rows.wanted.subset,
            "columns": [column.name for column in self._rows.columns],
            "revision": found["commit"],
            "licence": found["licence"],
            "split": f"the data set's own: {' and '.join(found['splits'])}",
            "max_train": self.max_train,
            "max_val": self.max_val,
            "empty_rows": found["empty"],
            "train_rows_also_in_validation_left_out": len(found["train"]) - len(train),
        }
        record = {key: value for key, value in record.items() if value is not None}
        return Split(train, val, record, self._baselines(train, val) if train else {})

    def _item(self, text: str, answer: str) -> Item:
        raise NotImplementedError

    def _baselines(self, train: list[Item], val: list[Item]) -> dict[str, float]:
        return {}

    def _chosen(self, rows: Iterator[Row], validation: bool) -> tuple[list[list[str]], int]:
        """The rows of a split that are wanted, in their order, and how many were empty."""
        everything = [list(row) for row in rows]
        full = [row for row in everything if None not in row]
        limit = self.max_val if validation else self.max_train
        first = sorted(range(len(full)), key=lambda i: (_hash(full[i][0]), i))[:limit]
        return [full[i] for i in sorted(first)], len(everything) - len(full)


class HubLabels(HubItems):
    """Name the class of a text.

    The rows are those of a data set of the hub: the first of its splits `validation`, `test` that there is, is the
    validation split here. Where fewer rows are wanted than there are, a hash of their text chooses them.

    "most frequent class" is that of training. "naive bayes, words" counts the words of whole texts, whatever their
    order, also where a model reads only their beginning.

    Args:
        dataset: its name on the hub, OWNER/NAME.
        subset: which one, where it has several.
        text, label: the columns with the text and its class: names, or numbers with names in the data set.
        revision: a branch, a tag or a commit; None is the newest.
        max_train, max_val: rows of the splits at most; None is all.

    Raises ConfigError for a name that cannot be one, and for limits below 1.
    """

    gives = "classify"

    def __init__(
        self,
        dataset: str,
        subset: str | None = None,
        text: str = "text",
        label: str = "label",
        revision: str | None = None,
        max_train: int | None = None,
        max_val: int | None = None,
    ) -> None:
        wanted = Wanted(dataset, subset, revision, "data=imdb", "data=majority, which needs no download")
        super().__init__(wanted, [Column(text, "text"), Column(label, "label", is_label=True)], max_train, max_val)

    def _item(self, text: str, answer: str) -> Item:
        return Item(text, [answer])

    def _baselines(self, train: list[Item], val: list[Item]) -> dict[str, float]:
        return {
            "most frequent class": most_frequent_class(train, val),
            "naive bayes, words": naive_bayes(train, val, _words),
        }


class HubPairs(HubItems):
    """Read a text, write the one that belongs to it, such as its translation.

    The rows are those of a data set of the hub: the first of its splits `validation`, `test` that there is, is the
    validation split here. Where fewer rows are wanted than there are, a hash of their text chooses them.

    Cross-attention solves it by finding the words that the next one stands for. "no source, from the token before":
    the most frequent token behind the one that was written last, whatever is to be translated.

    Args:
        dataset: its name on the hub, OWNER/NAME.
        subset: which one, where it has several.
        read, write: the columns with the text that is read, and the one that is written.
        revision: a branch, a tag or a commit; None is the newest.
        max_train, max_val: rows of the splits at most; None is all.

    Raises ConfigError for a name that cannot be one, and for limits below 1.
    """

    gives = "seq2seq"

    def __init__(
        self,
        dataset: str,
        subset: str | None = None,
        read: str = "en",
        write: str = "de",
        revision: str | None = None,
        max_train: int | None = None,
        max_val: int | None = None,
    ) -> None:
        wanted = Wanted(dataset, subset, revision, "data=multi30k", "data=reverse, which needs no download")
        super().__init__(wanted, [Column(read, "read"), Column(write, "write")], max_train, max_val)

    def _item(self, text: str, answer: str) -> Item:
        return Item(text, answer)


def _words(item: Item) -> list[str]:
    return _WORD.findall(str(item.source).lower())


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
