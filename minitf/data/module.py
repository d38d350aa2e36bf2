"""DataModule: from a text source to batches of token ids, prepared once and cached by content."""

import contextlib
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

import tokenizers

from minitf.data import ngram, store
from minitf.data.base import BaseData
from minitf.data.document_rows import TrainDocuments, ValDocuments
from minitf.data.encoding import encode, not_in_training
from minitf.data.gold import GoldTable, WithGold
from minitf.data.packing import Layout
from minitf.data.text import Documents
from minitf.data.tokenizer import BaseTokenizer
from minitf.data.tokens import check_same, names
from minitf.data.windows import TrainWindows, ValBatches, View, rows_per_part
from minitf.errors import ConfigError, DataError

ROWS = ("stream", "packed", "padded")


class Source(Protocol):
    """Where documents come from."""

    name: str

    def documents(self) -> Documents:
        """Read and split the text. Raises DataError."""


class DataModule(BaseData):
    """Text of one source as batches for next-token prediction, or for another view of it (`look_through`).

    The documents of a split are laid out as bos + ids, one after the other. Each token but the first is asked for.

    Args:
        source: gives the documents, already split.
        tokenizer: a recipe; it is trained on the training split only.
        seq_len: tokens per row, T.
        batch_size: rows per optimizer step, B.
        seed: an integer >= 0; order of the training rows.
        rows: "stream": windows of the text, which do not care where a document ends. "packed": a row holds whole
            documents, or pieces of those that are longer, which do not see each other. "padded": one document or piece
            a row, filled up with padding.
        gold: whether batches of validation say where answers stand. The source has `roles` and `token_gold` then, see
            `minitf.data.gold`.

    Raises ConfigError for sizes below 1, for other rows, and for gold where the source has none.
    """

    gives = "text"

    def __init__(
        self,
        source: Source,
        tokenizer: BaseTokenizer,
        seq_len: int,
        batch_size: int,
        seed: int,
        rows: str = "stream",
        gold: bool = False,
    ) -> None:
        super().__init__(seq_len, batch_size, seed)
        if rows not in ROWS:
            raise ConfigError(f"data.rows ({rows!r}) must be one of {', '.join(ROWS)}")
        if gold and not getattr(source, "roles", ()):
            raise ConfigError(
                f"data.gold=true: {source.name} does not say where answers stand; data=python_stdlib does"
            )
        self.rows, self.gold = rows, gold
        self.source = source
        self.name = source.name
        self.tokenizer = tokenizer
        self._view: View | None = None
        self._train: TrainWindows | TrainDocuments | None = None
        self._layouts: dict[str, Layout] = {}
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
            if self.rows == "stream" and len(ids) <= self.seq_len:
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
            "rows": self.rows,
        }
        if self.rows != "stream":
            for split, ids in [("train", self._train_ids), ("val", self._val_ids)]:
                layout = Layout(ids, self.tokenizer.bos_id, self.seq_len, packed=self.rows == "packed")
                self._layouts[split] = layout
                self.record |= {f"{split}_rows": layout.n_rows, f"{split}_fill": round(layout.fill, 4)}
            progress(f"{self.rows} rows of training: {self._layouts['train'].told}")
        if self.gold:
            batches = self.val_batches()
            self.record["gold"] = {"share_of_val_tokens": batches.shares, "documents_without": self._gold.n_unknown}
            progress(batches.told)
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

    def symbols(self, ids: Sequence[int]) -> list[str]:
        return names(self.tokenizer, ids)

    def save(self, folder: Path) -> None:
        self.tokenizer.save(folder)

    def check_saved(self, folder: Path) -> None:
        check_same(self.tokenizer, folder)

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

    def steps(self) -> TrainWindows | TrainDocuments:
        if self._train is None and self.rows == "stream":
            self._train = TrainWindows(self._train_ids, self.seq_len, self.batch_size, self.seed, self._view)
        elif self._train is None:
            self._train = TrainDocuments(self._layouts["train"], self.batch_size, self.seed, self._view)
        return self._train

    def val_batches(self) -> ValBatches | ValDocuments | WithGold:
        """This process's share of the whole validation split, as many rows at once as a training micro-batch has.

        With `gold` also "gold.<role>" (B,T,K) for each of `roles`: up to K columns that must be read at each place, the
        nearest first, -1 where there is none (further). Only what stands in the same row counts.
        """
        rows = rows_per_part(self.batch_size, self.n_micro, self.world_size)
        share = (rows, self.rank, self.world_size, self._view)
        if self.rows == "stream":
            batches = ValBatches(self._val_ids, self.seq_len, *share)
        else:
            batches = ValDocuments(self._layouts["val"], *share)
        return WithGold(batches, self._gold) if self.gold else batches

    @property
    def roles(self) -> tuple[str, ...]:
        """Names of the gold in batches of validation."""
        return self.source.roles if self.gold else ()

    @cached_property
    def _gold(self) -> GoldTable:
        texts = [text for text in self.val_texts if text]
        return GoldTable(self._val_ids, texts, self.tokenizer, self.roles, self.source.token_gold)

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
        train = encode(self.tokenizer, documents.train, "training", progress)
        try:
            val = encode(self.tokenizer, documents.val, "validation", progress)
        except DataError:
            raise not_in_training(self.tokenizer, documents) from None
        prepared = store.Prepared(self.tokenizer, train, val)
        progress(f"prepared in {time.perf_counter() - start:.1f} s")
        try:
            store.save(self._entry, prepared)
        except OSError as error:
            progress(f"the prepared data cannot be cached ({error}); MINITF_CACHE may name another folder")
        return prepared

    def _too_short(self, part: str, n_tokens: int) -> DataError:
        return DataError(
            f"the {part} split of {self.source.name} has {n_tokens} tokens, but one row needs seq_len + 1 = "
            f"{self.seq_len + 1}. Give more text, or a smaller data.seq_len"
            + (", or a larger data.source.val_fraction." if part == "validation" else ".")
        )


def _as_bytes(texts: Sequence[str]) -> list[bytes]:
    return [text.encode("utf-8") for text in texts]
