"""Any text data set of the Hugging Face hub, by name."""

import math
from collections.abc import Iterator
from itertools import islice

from minitf.data.articles import articles
from minitf.data.hub_access import Wanted
from minitf.data.hub_rows import Column, HubRows, Row
from minitf.data.rows import split_documents
from minitf.data.text import Documents, check_val_fraction
from minitf.errors import ConfigError

DOCUMENTS = ("rows", "articles")


class Hub:
    """Documents: one row each of one column of a data set.

    The data set's own splits are used: `train`, and `validation` or else `test`. Where it has no such split, documents
    are split by a stable hash of their content. Empty rows are left out.

    Args:
        dataset: its name on the hub, OWNER/NAME.
        subset: which one, where it has several.
        column: the column with the text.
        documents: "rows": each row is one. "articles": rows are lines, and a heading such as " = Title = ", alone
            between empty lines, begins a document, as in WikiText.
        revision: a branch, a tag or a commit; None is the newest.
        max_documents: take only the first ones; only they are fetched. Of a validation split of its own, as many as
            val_fraction of it.
        val_fraction: part of the characters that is validation, between 0 and 1.

    Raises ConfigError for a name that cannot be one.
    """

    name = "hub"

    def __init__(
        self,
        dataset: str,
        subset: str | None = None,
        column: str = "text",
        documents: str = "rows",
        revision: str | None = None,
        max_documents: int | None = None,
        val_fraction: float = 0.05,
    ) -> None:
        if documents not in DOCUMENTS:
            raise ConfigError(f"data.source.documents ({documents!r}) must be {' or '.join(DOCUMENTS)}")
        check_limit("max_documents", max_documents)
        self.made_of = documents
        self.max_documents = max_documents
        self.val_fraction = check_val_fraction(val_fraction)
        self._rows = HubRows(
            Wanted(dataset, subset, revision),
            [Column(column, "column")],
            self._chosen,
            [documents, max_documents, val_fraction],
        )

    def documents(self) -> Documents:
        """Read and split the rows: from minitf's cache, the hub, or the cache of `datasets`.

        Raises DataError if the data set cannot be had, within seconds where the hub cannot be reached.
        """
        found = self._rows.read()
        train, val = found["train"], found["val"]
        record = {
            "source": self.name,
            "dataset": found["dataset"],
            "subset": self._rows.wanted.subset,
            "column": self._rows.columns[0].name,
            "documents_are": self.made_of,
            "revision": found["commit"],
            "max_documents": self.max_documents,
            "documents": len(train) + len(val or []),
            "characters": sum(map(len, train)) + sum(map(len, val or [])),
            "empty_rows": found["empty"],
            "licence": found["licence"],
        }
        record = {key: value for key, value in record.items() if value is not None}
        names = [
            f"{found['dataset']} {found['splits'][-1]} document {i}" for i in range(len(train if val is None else val))
        ]
        if val is None:
            return split_documents(train, names, self.val_fraction, record)
        record["split"] = f"the data set's own: {' and '.join(found['splits'])}"
        record["validation_documents_also_in_training"] = len(set(val) & set(train))
        return Documents(train, val, record, names)

    def _chosen(self, rows: Iterator[Row], validation: bool) -> tuple[list[str], int]:
        """The documents of a split, and how many rows were empty; between lines empty ones have a meaning."""
        limit = self.max_documents
        if validation and limit:
            limit = math.ceil(limit * self.val_fraction)
        if self.made_of == "articles":
            return list(islice(articles(line or "" for (line,) in rows), limit)), 0
        texts: list[str] = []
        empty = 0
        for (text,) in rows:
            if text is None:
                empty += 1
            else:
                texts.append(text)
            if len(texts) == limit:
                break
        return texts, empty


def check_limit(name: str, value: int | None) -> int | None:
    """`value` itself. Raises ConfigError unless it is a number of rows, or None for all."""
    if value is not None and (type(value) is not int or value < 1):
        raise ConfigError(f"data.source.{name} ({value!r}) must be a whole number of at least 1, or null")
    return value
