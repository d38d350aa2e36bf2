"""Batches of a data set of items: every epoch in an order of its own, each batch a function of seed and step."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from minitf.data import store
from minitf.data.arrays import Rows, ValRows, n_scored, tensors
from minitf.data.base import BaseData
from minitf.data.items import ItemSource, Split
from minitf.data.items.encode import UNKNOWN, Symbols, encode, tables
from minitf.data.items.order import Order
from minitf.data.items.spelling import SYMBOLS_FILE
from minitf.data.items.trimmed import TrimmedRows, trimmed
from minitf.data.windows import rows_per_part
from minitf.errors import ConfigError, DataError
from minitf.files import write_json

FORMAT = 1  # raise it when the same facts give other items
SPLITS = ("train", "val")


@dataclass(frozen=True)
class More:
    """What encoding adds: to the record, to the baselines, to the values that are kept."""

    record: dict[str, Any] = field(default_factory=dict)
    baselines: dict[str, float] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)


class ItemData(BaseData):
    """Items of one source. A batch is as wide as its longest row; `val` batches say in "row" which rows they hold.

    Args:
        source: gives the items, already split.
        seq_len: tokens of the longest row, T. Texts to be classified are cut to it; others must fit.
        batch_size: rows per optimizer step, B.
        seed: an integer >= 0; order of the training rows.
        pool: batches of which the rows are sorted by length, so that a batch holds little padding; 1: rows lie as they
            come.
        hide: share of the symbols of its source that training reads as the unknown one, others in every step.

    Attributes:
        roles: "gold.<role>" (B,T,K) of a batch: for each place of `targets` up to K columns that answer it, -1 where
            there is none (further); columns of "src" for an encoder-decoder, of "ids" otherwise.

    Raises ConfigError for sizes below 1, or no share.
    """

    def __init__(
        self, source: ItemSource, seq_len: int, batch_size: int, seed: int, pool: int = 1, hide: float = 0.0
    ) -> None:
        super().__init__(seq_len, batch_size, seed)
        if not (isinstance(pool, int) and pool >= 1):
            raise ConfigError(f"data.pool ({pool}) must be a whole number of batches, at least 1")
        if not (isinstance(hide, int | float) and 0 <= hide < 1):
            raise ConfigError(f"data.hide ({hide}) must be a share from 0 up to, not including, 1")
        self.pool, self.hide = pool, hide
        self.source = source
        self.name = source.name
        self.roles = source.roles

    @property
    def gives(self) -> str:
        return self.source.gives

    @property
    def facts(self) -> dict[str, int | None]:
        writes = self.gives == "seq2seq"
        n_read, n_answers = len(self._symbols.read), len(self._symbols.answers)
        return {
            "vocab_size": n_read,
            "src_vocab_size": n_read if writes else None,
            "n_classes": None if writes else n_answers,
        }

    def prepare(self, progress: Callable[[str], object] = print) -> ItemData:
        """Take the items from the cache, or read and encode them. Returns self.

        Args:
            progress: is called with one line of text now and then.

        Raises DataError if the source cannot be had, or an item does not fit into `seq_len`.
        """
        arrays, kept = self._kept(progress)
        self._symbols = Symbols(kept["read"], kept["answers"])
        self._splits = {
            split: {n.partition("/")[2]: array for n, array in arrays.items() if n.startswith(f"{split}/")}
            for split in SPLITS
        }
        self.record, self._baselines = kept["record"], kept["baselines"]
        longest = max(int(self._splits[split][n].max()) for split in SPLITS for n in self._lengths)
        if longest > self.seq_len and self.gives != "classify":
            raise DataError(
                f"the longest row of {self.name} has {longest} tokens, more than data.seq_len ({self.seq_len}): "
                f"use data.seq_len={longest}"
            )
        for split in SPLITS:
            for n in self._lengths:
                self._splits[split][n] = np.minimum(self._splits[split][n], self.seq_len)
        lengths = sum(self._splits["train"][name].astype(int) for name in self._lengths)
        self._order = Order(lengths, self.batch_size, self.pool, self.seed)
        progress(
            f"{self.name}: {self.record['train_rows']:,} + {self.record['val_rows']:,} rows (training + validation), "
            f"{len(self._symbols.read)} symbols, {len(self._symbols.answers)} in answers, the longest row has {longest}"
        )
        return self

    def baselines(self) -> dict[str, float]:
        return dict(self._baselines)

    def steps(self) -> ItemData:
        return self

    def batch(self, step: int, micro: int = 0, n_micro: int = 1) -> dict[str, Any]:
        """Part `micro` of `n_micro` equal parts of the rows of step `step`; as for `train_batch`."""
        n = rows_per_part(self.batch_size, n_micro)
        rows = self._rows("train", self._order.step(step))
        if self.hide:
            read = "src" if self.gives == "seq2seq" else "ids"
            hidden = np.random.default_rng([self.seed, step, 1]).random(rows[read].shape) < self.hide
            rows[read] = np.where(hidden, self._symbols.read.index(UNKNOWN), rows[read])
        rows = trimmed(rows)  # of the whole step: its parts are equally wide
        part = {name: array[micro * n : (micro + 1) * n] for name, array in rows.items()}
        return {**tensors(part), "n_scored": n_scored(rows)}

    def val_batches(self) -> ValRows:
        n = rows_per_part(self.batch_size, self.n_micro, self.world_size)
        everything = np.arange(self.record["val_rows"])
        rows = {**self._rows("val", everything), "row": everything}
        return TrimmedRows(rows, n, self.rank, self.world_size)

    def references(self) -> list[list[list[int]]]:
        """For each row of the validation split all right answers, as ids of `answer_symbols`, without an end."""
        val = self._splits["val"]
        if "label" in val:
            found = [[[int(label)]] for label in val["label"]]
        else:
            lengths = val["len"] - (self.gives == "seq2seq")
            found = [[row[:n].tolist()] for row, n in zip(val["targets"], lengths, strict=True)]
        for i, other in zip(val["others_of"], val["others"], strict=True):
            found[i].append(other[other >= 0].tolist())
        return found

    def symbols(self, ids: Sequence[int]) -> list[str]:
        """What people read for ids of "ids"."""
        return [self._symbols.read[i] for i in ids]

    def src_symbols(self, ids: Sequence[int]) -> list[str]:
        """What people read for ids of "src"."""
        return self.symbols(ids)

    def answer_symbols(self, ids: Sequence[int]) -> list[str]:
        """What people read for targets and labels."""
        return [self._symbols.answers[i] for i in ids]

    def save(self, folder: Path) -> None:
        """Keep the tables of symbols: what the ids of the model mean."""
        write_json(folder / SYMBOLS_FILE, self._tables())

    def check_saved(self, folder: Path) -> None:
        """Raise DataError unless `folder` keeps the same tables."""
        try:
            same = json.loads((folder / SYMBOLS_FILE).read_text(encoding="utf-8")) == self._tables()
        except (OSError, ValueError):
            same = False
        if not same:
            raise DataError(f"the symbols of {self.name} are not those of {folder / SYMBOLS_FILE}: start a new run")

    def _tables(self) -> dict[str, list[str]]:
        return {"read": self._symbols.read, "answers": self._symbols.answers}

    @property
    def _lengths(self) -> tuple[str, ...]:
        return ("src_len", "len") if self.gives == "seq2seq" else ("len",)

    def _kept(self, progress: Callable[[str], object]) -> tuple[Rows, dict[str, Any]]:
        """Arrays and values of the cache; made first where they are not there, by one process at a time."""
        path = store.cache_folder() / "items" / f"{store.entry_folder(self._depends_on()).name}.npz"
        kept = store.load_arrays(path)
        if kept is not None:
            return kept
        with contextlib.ExitStack() as held:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                held.enter_context(FileLock(path.with_suffix(".lock")))
                kept = store.load_arrays(path)  # another process may have made it meanwhile
            except OSError as error:
                progress(f"the prepared data cannot be cached ({error}); MINITF_CACHE may name another folder")
                return self._make(progress)
            if kept is None:
                kept = self._make(progress)
                try:
                    store.save_arrays(path, *kept)
                except OSError as error:
                    progress(f"the prepared data cannot be cached ({error}); MINITF_CACHE may name another folder")
        return kept

    def _make(self, progress: Callable[[str], object]) -> tuple[Rows, dict[str, Any]]:
        start = time.perf_counter()
        split = self.source.split(progress)
        for part in SPLITS:
            if not getattr(split, part):
                raise DataError(f"the {part} split of {self.name} is empty: check the settings of data.source")
        symbols, rows, more = self._encoded(split, progress)
        arrays = {f"{part}/{name}": array for part in SPLITS for name, array in rows[part].items()}
        content = hashlib.sha256(json.dumps([symbols.read, symbols.answers]).encode())
        for name in sorted(arrays):
            content.update(f"{name} {arrays[name].shape}".encode() + arrays[name].tobytes())
        record = {
            "source": self.name,
            **split.record,
            **more.record,
            "sha256": content.hexdigest(),
            "symbols": len(symbols.read),
            "answer_symbols": len(symbols.answers),
            "train_rows": len(rows["train"]["len"]),
            "val_rows": len(rows["val"]["len"]),
        }
        progress(f"{self.name} made in {time.perf_counter() - start:.1f} s")
        values = {
            "read": symbols.read,
            "answers": symbols.answers,
            "record": record,
            "baselines": {**split.baselines, **more.baselines},
            **more.values,
        }
        return arrays, values

    def _depends_on(self) -> list[Any]:
        """Plain values: with the same ones the arrays are the same."""
        return [FORMAT, self.name, self.source.depends_on()]

    def _encoded(self, split: Split, progress: Callable[[str], object]) -> tuple[Symbols, dict[str, Rows], More]:
        """The tables, the rows of both splits, and what else is known of them."""
        symbols = tables(self.gives, split.train, split.val)
        rows = {part: encode(self.gives, self.roles, getattr(split, part), symbols) for part in SPLITS}
        return symbols, rows, More()

    def _rows(self, split: str, numbers: np.ndarray) -> Rows:
        """Rows of a split as a batch holds them, at full width."""
        found: Rows = {}
        for name, array in self._splits[split].items():
            if name.startswith("others"):
                continue
            rows = array[numbers]
            if name in self._lengths:
                wide = self._splits[split]["src" if name == "src_len" else "ids"].shape[1]
                places = np.arange(wide)
                found[name.replace("len", "pos")] = np.where(places < rows[:, None], places, -1)
            else:
                found[name] = rows
        return found
