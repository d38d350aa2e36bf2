"""Items that are texts: a tokenizer reads them, and writes their answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from minitf.data.arrays import Rows
from minitf.data.items import Item, ItemSource, Split
from minitf.data.items.encode import END, Symbols, arranged
from minitf.data.items.guessing import after_the_token_before
from minitf.data.items.module import SPLITS, ItemData, More
from minitf.data.tokenizer import BaseTokenizer, tokenizer_of
from minitf.data.tokens import check_same, names
from minitf.errors import ConfigError, DataError


class TextItemData(ItemData):
    """Items of one source in tokens of a tokenizer that is trained on the texts of the training split alone.

    A text to be classified is bos and its tokens, cut to `seq_len`. In a pair of texts both sides have the same
    tokenizer, and bos starts and ends what is written; pairs of training that are longer than `seq_len` are left out,
    those of validation must fit. The record says how many were cut and left out.

    Args:
        source: gives the items; what they read, and what is written, are texts.
        tokenizer: a recipe.
        seq_len: tokens of the longest row, T.
        batch_size: rows per optimizer step, B.
        seed: an integer >= 0; order of the training rows.

    Raises ConfigError for sizes below 1, and for a source of another kind.
    """

    def __init__(self, source: ItemSource, tokenizer: BaseTokenizer, seq_len: int, batch_size: int, seed: int) -> None:
        super().__init__(source, seq_len, batch_size, seed)
        if source.gives not in ("classify", "seq2seq") or source.roles:
            raise ConfigError(f"{source.name} gives no texts to classify or to translate: it needs no tokenizer")
        self.tokenizer = tokenizer

    def answer_text(self, ids: Sequence[int]) -> str | None:
        return self.tokenizer.decode(ids) if self.gives == "seq2seq" else None

    def save(self, folder: Path) -> None:
        self.tokenizer.save(folder)

    def check_saved(self, folder: Path) -> None:
        check_same(self.tokenizer, folder)

    def _depends_on(self) -> list[Any]:
        return [*super()._depends_on(), self.tokenizer.settings, tokenizers.__version__, self.seq_len]

    def _kept(self, progress: Callable[[str], object]) -> tuple[Rows, dict[str, Any]]:
        arrays, values = super()._kept(progress)
        self.tokenizer = tokenizer_of(values["tokenizer"])
        return arrays, values

    def _encoded(self, split: Split, progress: Callable[[str], object]) -> tuple[Symbols, dict[str, Rows], More]:
        progress(f"training the tokenizer {self.tokenizer.settings} on the training split")
        settings, writes = self.tokenizer.settings, self.gives == "seq2seq"
        tokenizer = self.tokenizer.train(
            text for item in split.train for text in ((item.source, item.answer) if writes else (item.source,))
        )
        known = names(tokenizer, range(tokenizer.vocab_size))
        more: dict[str, Any] = {"tokenizer": settings}
        rows: dict[str, Rows] = {}
        if writes:
            known[tokenizer.bos_id] = END
            symbols = Symbols(known, known)
            for part in SPLITS:
                rows[part], more[f"{part}_pairs_left_out"] = self._pairs(part, getattr(split, part), tokenizer)
        else:
            symbols = Symbols(known, sorted({item.answer[0] for part in SPLITS for item in getattr(split, part)}))
            for part in SPLITS:
                rows[part], more[f"{part}_rows_cut"] = self._labelled(getattr(split, part), tokenizer, symbols)
        baselines = {"no source, from the token before": after_the_token_before(**rows)} if writes else {}
        return symbols, rows, More(more, baselines, {"tokenizer": tokenizer.content()})

    def _labelled(self, items: list[Item], tokenizer: BaseTokenizer, symbols: Symbols) -> tuple[Rows, int]:
        """The rows of a split, and how many were cut."""
        bos, class_of = [tokenizer.bos_id], {name: i for i, name in enumerate(symbols.answers)}
        texts = tokenizer.encode_batch(item.source for item in items)
        sources = [np.concatenate([bos, ids[: self.seq_len - 1]]).astype(np.int64) for ids in texts]
        n_cut = sum(len(ids) >= self.seq_len for ids in texts)
        return arranged(self.gives, sources, [[class_of[item.answer[0]]] for item in items]), n_cut

    def _pairs(self, part: str, items: list[Item], tokenizer: BaseTokenizer) -> tuple[Rows, int]:
        """The rows of a split, and how many were left out. Raises DataError if no row of training fits."""
        sources = tokenizer.encode_batch(item.source for item in items)
        answers = tokenizer.encode_batch(item.answer for item in items)
        longest = [max(len(read), len(written) + 1) for read, written in zip(sources, answers, strict=True)]
        fits = [i for i, n in enumerate(longest) if n <= self.seq_len or part == "val"]
        if not fits:
            raise DataError(
                f"every pair of {self.name} has more tokens than data.seq_len ({self.seq_len}): the shortest has "
                f"{min(longest)}, the longest {max(longest)}; use a larger data.seq_len"
            )
        rows = arranged(self.gives, [sources[i] for i in fits], [answers[i] for i in fits], tokenizer.bos_id)
        return rows, len(items) - len(fits)
