"""DataModule: from a text source to batches of token ids, prepared once and cached by content."""

import contextlib
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import tokenizers

from minitf.data import ngram, store
from minitf.data.base import BaseData
from minitf.data.text import Documents
from minitf.data.tokenizer import BaseTokenizer, id_dtype, load_tokenizer
from minitf.data.windows import TrainWindows, ValBatches, View, rows_per_part
from minitf.errors import DataError

PROGRESS_EVERY = 2.0  # seconds between lines while a long text is encoded


class Source(Protocol):
    """Where documents come from."""

    name: str

    def documents(self) -> Documents:
        """Read and split the text. Raises DataError."""


class DataModule(BaseData):
    """Text of one source as batches for next-token prediction, or for another view of it (`look_through`).

    The documents of a split are laid out as bos + ids, one after the other. A row may cover several documents.

    Args:
        source: gives the documents, already split.
        tokenizer: a recipe; it is trained on the training split only.
        seq_len: tokens per row, T.
        batch_size: rows per optimizer step, B.
        seed: an integer >= 0; order of the training windows.

    Raises ConfigError for sizes below 1.
    """

    gives = "text"

    def __init__(self, source: Source, tokenizer: BaseTokenizer, seq_len: int, batch_size: int, seed: int) -> None:
        super().__init__(seq_len, batch_size, seed)
        self.source = source
        self.name = source.name
        self.tokenizer = tokenizer
        self._view: View | None = None
        self._train: TrainWindows | None = None
        self._entry: Path | None = None

    def prepare(self, progress: Callable[[str], object] = print) -> "DataModule":
        """Read the source, and take tokenizer and ids from the cache or make them. Returns self.

        Args:
            progress: is called with one line of text now and then.

        Raises DataError if the source cannot be used, a split is shorter than one row, or the text cannot be encoded.
        """
        documents = self.source.documents()
        n_characters = [sum(map(len, split)) for split in (documents.train, documents.val)]
        progress(
            f"{self.source.name}: {len(documents.train)} + {len(documents.val)} documents (training + validation), "
            f"{n_characters[0]:,} + {n_characters[1]:,} characters"
        )
        for part, n in zip(("training", "validation"), n_characters, strict=True):
            if n == 0:
                raise self._too_short(part, 0)
        content = documents.content_hash()
        self._entry = store.entry_folder(content, self.tokenizer.settings, tokenizers.__version__)
        prepared = self._load(progress) or self._make(documents, progress)
        for part, ids in [("training", prepared.train), ("validation", prepared.val)]:
            if len(ids) <= self.seq_len:
                raise self._too_short(part, len(ids))
        self.tokenizer = prepared.tokenizer
        self.val_bytes = sum(len(text.encode("utf-8")) for text in documents.val)
        self._train_ids, self._val_ids, self._train = prepared.train, prepared.val, None
        self.record = {
            **documents.record,
            "sha256": content,
            "train_documents": len(documents.train),
            "val_documents": len(documents.val),
            "tokenizer": self.tokenizer.settings,
            "vocab_size": self.vocab_size,
            "train_tokens": self.n_train_tokens,
            "val_tokens": self.n_val_tokens,
            "val_bytes": self.val_bytes,
        }
        progress(
            f"{self.n_train_tokens:,} + {self.n_val_tokens:,} tokens, vocabulary {self.vocab_size}, "
            f"{self.val_bytes / self.n_val_tokens:.2f} bytes per token"
        )
        return self

    @property
    def vocab_size(self) -> int:
        """Number of token ids, the special ones counted."""
        return self.tokenizer.vocab_size

    @property
    def facts(self) -> dict[str, int | None]:
        return {"vocab_size": self.vocab_size, "src_vocab_size": None, "n_classes": None}

    def look_through(self, view: View) -> None:
        """Let `view` make ids and targets of the text, instead of asking for the next token."""
        self._view = view

    def save(self, folder: Path) -> None:
        self.tokenizer.save(folder)

    def check_saved(self, folder: Path) -> None:
        if load_tokenizer(folder).content() != self.tokenizer.content():
            raise DataError(
                "the tokenizer made from the text is not the one in the run folder, although the text is the same: "
                "install the version of `tokenizers` that the run began with, or start a new run"
            )

    @property
    def n_train_tokens(self) -> int:
        """Tokens of the training split, one bos per document counted."""
        return len(self._train_ids)

    @property
    def n_val_tokens(self) -> int:
        """Tokens of the validation split, one bos per document counted."""
        return len(self._val_ids)

    @property
    def train_texts(self) -> list[str]:
        """Documents of the training split; read from the source again at the first use."""
        return self._documents.train

    @property
    def val_texts(self) -> list[str]:
        """Documents of the validation split; read from the source again at the first use."""
        return self._documents.val

    @cached_property
    def _documents(self) -> Documents:
        documents = self.source.documents()
        if documents.content_hash() != self.record["sha256"]:
            raise DataError(f"the text of {self.source.name} has changed since it was prepared: start again")
        return documents

    def steps(self) -> TrainWindows:
        if self._train is None:
            self._train = TrainWindows(self._train_ids, self.seq_len, self.batch_size, self.seed, self._view)
        return self._train

    def val_batches(self) -> ValBatches:
        """This process's share of the whole validation split, as many rows at once as a training micro-batch has."""
        rows = rows_per_part(self.batch_size, self.n_micro, self.world_size)
        return ValBatches(self._val_ids, self.seq_len, rows, self.rank, self.world_size, self._view)

    def baselines(self) -> dict[str, float]:
        return {"witten_bell_byte_5gram_bits_per_byte": self.baseline()}

    def baseline(self) -> float:
        """Bits per byte of an interpolated Witten-Bell byte 5-gram, trained and measured on the same splits; cached."""
        path = self._entry / "baseline.json"
        kept = store.load_checked(path)
        if isinstance(kept, dict) and isinstance(kept.get("bits_per_byte"), float):
            return kept["bits_per_byte"]
        documents = self._documents
        bits = ngram.witten_bell_bits_per_byte(_as_bytes(documents.train), _as_bytes(documents.val))
        with contextlib.suppress(OSError):  # `prepare` has said that nothing can be cached
            store.save_checked(path, {"order": ngram.ORDER, "bits_per_byte": bits})
        return bits

    def _load(self, progress: Callable[[str], object]) -> store.Prepared | None:
        try:
            prepared = store.load(self._entry)
        except ValueError as error:
            progress(f"the prepared data in {self._entry} is damaged and made anew ({error})")
            return None
        if prepared is not None:
            progress(f"tokenizer and ids taken from {self._entry}")
        return prepared

    def _make(self, documents: Documents, progress: Callable[[str], object]) -> store.Prepared:
        start = time.perf_counter()
        progress(f"training the tokenizer {self.tokenizer.settings} on the training split")
        self.tokenizer.train(documents.train)
        train = self._encode(documents.train, "training", progress)
        try:
            val = self._encode(documents.val, "validation", progress)
        except DataError:
            raise self._not_in_training(documents) from None
        prepared = store.Prepared(self.tokenizer, train, val)
        progress(f"prepared in {time.perf_counter() - start:.1f} s")
        try:
            store.save(self._entry, prepared)
        except OSError as error:
            progress(f"the prepared data cannot be cached ({error}); MINITF_CACHE may name another folder")
        return prepared

    def _encode(self, texts: Sequence[str], part: str, progress: Callable[[str], object]) -> np.ndarray:
        bos = np.array([self.tokenizer.bos_id], dtype=id_dtype(self.vocab_size))
        total = sum(map(len, texts))
        done, shown = 0, time.perf_counter()

        def report(n: int) -> None:
            nonlocal done, shown
            done += n
            if time.perf_counter() - shown > PROGRESS_EVERY and done < total:
                progress(f"encoding the {part} split: {done / total:.0%}")
                shown = time.perf_counter()

        laid_out: list[np.ndarray] = []
        for ids in self.tokenizer.encode_batch(texts, report):
            if len(ids):  # an empty document would be a bos that nothing follows
                laid_out += [bos, ids]
        return np.concatenate(laid_out)

    def _not_in_training(self, documents: Documents) -> DataError:
        """The error for a validation text that the tokenizer cannot write, with all its characters and documents."""
        where = []
        names = documents.val_names or [f"document {i}" for i in range(len(documents.val))]
        for name, text in zip(names, documents.val, strict=True):
            try:
                self.tokenizer.encode_batch([text])
            except DataError:
                where.append(name)
        try:
            self.tokenizer.encode_batch(["".join(documents.val)])
        except DataError as error:
            more = f" and {len(where) - 5} more" if len(where) > 5 else ""
            return DataError(f"validation ({', '.join(where[:5])}{more}): {error}")
        raise AssertionError("every document of the validation split can be encoded")

    def _too_short(self, part: str, n_tokens: int) -> DataError:
        return DataError(
            f"the {part} split of {self.source.name} has {n_tokens} tokens, but one row needs seq_len + 1 = "
            f"{self.seq_len + 1}. Give more text, or a smaller data.seq_len"
            + (", or a larger data.source.val_fraction." if part == "validation" else ".")
        )


def _as_bytes(texts: Sequence[str]) -> list[bytes]:
    return [text.encode("utf-8") for text in texts]
