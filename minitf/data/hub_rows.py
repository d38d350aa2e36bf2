"""Chosen columns of a data set of the Hugging Face hub: read once, checked, and kept in minitf's cache.

Only data is read: a data set that needs code of its own is refused. What was taken is kept with its commit, so the same
run works again without a network.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minitf.data import hub_access as access
from minitf.data import store
from minitf.errors import ConfigError, DataError

VALIDATION = ("validation", "valid", "dev", "test")  # names of a split to measure on, the first that there is
Row = tuple[str | None, ...]  # the text or the class in each of the columns; None where it is empty
Choose = Callable[[Iterator[Row], bool], tuple[list, int]]


@dataclass(frozen=True)
class Column:
    """A column that is read.

    Args:
        name: in the data set.
        option: of `data.source`, which says its name.
        is_label: it holds classes (texts or whole numbers), not texts.
    """

    name: str
    option: str
    is_label: bool = False


class HubRows:
    """The rows of a data set. Its own splits are used: `train`, and `validation` or else `test`.

    Args:
        wanted: which data set.
        columns: what is read of each row.
        choose: is given the rows of a split one after the other, and whether they are of validation; what it does not
            ask for is not fetched. Returns what is kept, as values that JSON can write, and how many rows were empty.
        depends_on: plain values on which `choose` depends.

    Raises ConfigError for a name that cannot be one.
    """

    def __init__(
        self, wanted: access.Wanted, columns: Sequence[Column], choose: Choose, depends_on: Sequence[Any]
    ) -> None:
        asked = {"dataset": wanted.dataset, "subset": wanted.subset, "revision": wanted.revision}
        for key, value in {**asked, **{column.option: column.name for column in columns}}.items():
            if not isinstance(value, str) and not (value is None and key in asked):
                raise ConfigError(
                    f"data.source.{key} must be text, got {value!r}: quote it, data.source.{key}=\"'...'\""
                )
        if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", wanted.dataset or ""):
            raise ConfigError(
                f"data.source.dataset={wanted.dataset} is no name on the hub, which looks like OWNER/NAME. "
                "For files of your own: data=text_files data.source.path=..."
            )
        self.wanted, self.columns = wanted, tuple(columns)
        self._choose, self._depends_on = choose, list(depends_on)
        self._commit: str | None = None  # once read: a second reading must give the same

    def read(self) -> dict[str, Any]:
        """What is kept: "train" and "val" (None: there is no such split), as `choose` gave them; "empty", how many rows
        were; "dataset", "commit", "licence" and "splits".

        From minitf's cache, the hub, or the cache of `datasets`. Raises DataError if the data set cannot be had, within
        seconds where the hub cannot be reached.
        """
        found = self._found()
        self._commit = found["commit"]
        return found

    def _found(self) -> dict[str, Any]:
        place = self._place()
        kept = store.load_checked(place)
        if kept is not None and kept["commit"] == self._commit:
            return kept
        reason = access.why_unreachable()
        if reason is not None:
            return kept if kept is not None else self._take(access.prepared_before(self.wanted, reason))
        found = access.look_up(self.wanted.dataset, self._commit or self.wanted.revision)
        if kept is not None and kept["commit"] == found.commit:
            return kept
        rows = self._take(access.stream(self.wanted, found))
        # a cache that cannot be written costs another fetch next time, no more
        with contextlib.suppress(OSError):
            store.save_checked(place, rows)
        return rows

    def _place(self) -> Path:
        columns = [[column.name, column.is_label] for column in self.columns]
        asked = [self.wanted.dataset, self.wanted.subset, self.wanted.revision, columns, self._depends_on]
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
        rows, empty = self._choose(self._rows(found, train), False)
        rows_val, empty_val = (None, 0) if val is None else self._choose(self._rows(found, val), True)
        return {
            "dataset": found.name,
            "commit": found.commit,
            "licence": found.licence or "not given by the data set",
            "splits": [train] if val is None else [train, val],
            "train": rows,
            "val": rows_val,
            "empty": empty + empty_val,
        }

    def _rows(self, found: access.Found, split: str) -> Iterator[Row]:
        """Each row of a split. Raises DataError for columns that there are not, or that hold something else."""
        features = getattr(found.splits[split], "features", None) or {}
        names = [getattr(features.get(column.name), "names", None) for column in self.columns]
        for i, row in enumerate(access.guarded(found, split)):
            for column in self.columns:
                if column.name not in row:
                    what = "label" if column.is_label else "text"
                    raise DataError(
                        f"{found.name} has no column {column.name!r}, only {_listed(row)}: "
                        f"name the column with the {what} by data.source.{column.option}=NAME"
                    )
                value, is_label = row[column.name], column.is_label
                if value is not None and not isinstance(value, str | int if is_label else str):
                    raise DataError(
                        f"{found.name}, split {split}, row {i} (counted from 0): column {column.name!r} holds "
                        f"{value!r:.60}, which is no {'label' if is_label else 'text'}. It has {_listed(row)}; choose "
                        f"by data.source.{column.option}=NAME"
                    )
            yield tuple(_named(row[column.name], known) for column, known in zip(self.columns, names, strict=True))


def _named(value: str | int | None, names: Sequence[str] | None) -> str | None:
    """A text, or the name of a class; None where it is empty, as -1 stands for a class that is not known."""
    if isinstance(value, int) and names is not None:
        return names[value] if 0 <= value < len(names) else None
    return None if value is None else str(value) or None


def _listed(row: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(row))
