"""Any text data set of the Hugging Face hub, by name: its rows are read once, checked, and kept.

Only data is read: a data set that needs code of its own is refused. The rows that were taken are kept in minitf's cache
with their commit, so the same run works again without a network.
"""

import contextlib
import hashlib
import json
import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from minitf.data import hub_access as access
from minitf.data import store
from minitf.data.rows import split_documents
from minitf.data.text import Documents, check_val_fraction
from minitf.errors import ConfigError, DataError

if TYPE_CHECKING:
    from pathlib import Path

VALIDATION = ("validation", "valid", "dev", "test")  # names of a split to measure on, the first that there is


class Hub:
    """Documents: one row each of one column of a data set.

    The data set's own splits are used: `train`, and `validation` or else `test`. Where it has no such split, documents
    are split by a stable hash of their content. Empty rows are left out.

    Args:
        dataset: its name on the hub, OWNER/NAME.
        subset: which one, where it has several.
        column: the column with the text.
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
        revision: str | None = None,
        max_documents: int | None = None,
        val_fraction: float = 0.05,
    ) -> None:
        for key, value in [("dataset", dataset), ("subset", subset), ("column", column), ("revision", revision)]:
            if value is not None and not isinstance(value, str):
                raise ConfigError(
                    f"data.source.{key} must be text, got {value!r}: quote it, data.source.{key}=\"'...'\""
                )
        if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", dataset or ""):
            raise ConfigError(
                f"data.source.dataset={dataset} is no name on the hub, which looks like OWNER/NAME. "
                "For files of your own: data=text_files data.source.path=..."
            )
        if max_documents is not None and (type(max_documents) is not int or max_documents < 1):
            raise ConfigError(f"max_documents ({max_documents!r}) must be a whole number of at least 1, or null")
        self.dataset, self.subset, self.column, self.revision = dataset, subset, column, revision
        self.max_documents = max_documents
        self.val_fraction = check_val_fraction(val_fraction)
        self._commit: str | None = None  # once read: a second reading must give the same

    def documents(self) -> Documents:
        """Read and split the rows: from minitf's cache, the hub, or the cache of `datasets`.

        Raises DataError if the data set cannot be had, within seconds where the hub cannot be reached.
        """
        found = self._rows()
        self._commit = found["commit"]
        train, val = found["train"], found["val"]
        record = {
            "source": self.name,
            "dataset": found["dataset"],
            "subset": self.subset,
            "column": self.column,
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

    def _rows(self) -> dict[str, Any]:
        """The rows and what is known of them, as they are kept."""
        place = self._place()
        kept = store.load_checked(place)
        if kept is not None and kept["commit"] == self._commit:
            return kept
        reason = access.why_unreachable()
        if reason is not None:
            return kept if kept is not None else self._take(access.prepared_before(self._wanted(), reason))
        found = access.look_up(self.dataset, self._commit or self.revision)
        if kept is not None and kept["commit"] == found.commit:
            return kept
        rows = self._take(access.stream(self._wanted(), found))
        # a cache that cannot be written costs another fetch next time, no more
        with contextlib.suppress(OSError):
            store.save_checked(place, rows)
        return rows

    def _wanted(self) -> access.Wanted:
        return access.Wanted(self.dataset, self.subset, self.revision)

    def _place(self) -> "Path":
        asked = [self.dataset, self.subset, self.column, self.revision, self.max_documents, self.val_fraction]
        key = hashlib.sha256(json.dumps([store.FORMAT, *asked]).encode()).hexdigest()
        return store.cache_folder() / "hub" / f"{key[:32]}.json"

    def _take(self, found: access.Found) -> dict[str, Any]:
        """Read the splits that are needed."""
        splits = list(found.splits)
        train = "train" if "train" in splits or len(splits) > 1 else splits[0]
        if train not in splits:
            raise DataError(
                f"{found.name} has no split 'train', only {', '.join(splits)}: use another data set or subset"
            )
        val = next((name for name in VALIDATION if name in splits and name != train), None)
        limit = self.max_documents
        rows, empty = self._texts(found, train, limit)
        rows_val = None
        if val is not None:
            rows_val, n = self._texts(found, val, limit and math.ceil(limit * self.val_fraction))
            empty += n
        return {
            "dataset": found.name,
            "commit": found.commit,
            "licence": found.licence or "not given by the data set",
            "splits": [train] if val is None else [train, val],
            "train": rows,
            "val": rows_val,
            "empty": empty,
        }

    def _texts(self, found: access.Found, split: str, limit: int | None) -> tuple[list[str], int]:
        """Texts of one split, and how many rows were empty."""
        texts: list[str] = []
        empty = 0
        for i, row in enumerate(access.guarded(found, split)):
            if self.column not in row:
                raise DataError(
                    f"{found.name} has no column {self.column!r}, only {_columns(row)}: "
                    "name the column with the text by data.source.column=NAME"
                )
            text = row[self.column]
            if text is not None and not isinstance(text, str):
                raise DataError(
                    f"{found.name}, split {split}, row {i} (counted from 0): column {self.column!r} holds "
                    f"{text!r:.60}, which is no text. It has {_columns(row)}; choose by data.source.column=NAME"
                )
            if text:
                texts.append(text)
            else:
                empty += 1
            if limit is not None and len(texts) == limit:
                break
        return texts, empty


def _columns(row: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(row))
