"""What copying, reversing and sorting have in common: symbols are read, and written in another order."""

from __future__ import annotations

import numpy as np

from minitf.data.synthetic import IGNORED, NO_SOURCE, Rows, SyntheticTask, check_number, lengths, places
from minitf.errors import ConfigError

FORMS = ("seq2seq", "answers", "tag")


class Rewriting(SyntheticTask):
    """Read `least` or more symbols and write them in another order.

    Ids 0 to n_symbols-1 are symbols, n_symbols stands before what is written and ends it. Rows have different lengths
    and are padded at the end. The end has no gold: how long the text is can be known in many ways.

    Args:
        n_symbols: how many symbols there are.
        least: shortest text, in symbols.
        form: seq2seq: an encoder reads the symbols, a decoder writes; up to T - 1 symbols. answers: a decoder reads
            the symbols and goes on with the answer; up to (T - 1) // 2 symbols. tag: the answers stand at the symbols'
            own places, for encoders; up to T symbols and no end. With `least` as large as that all rows are as long.
    """

    def __init__(self, n_symbols: int, least: int, form: str) -> None:
        self.n_symbols = check_number("n_symbols", n_symbols, 2)
        self.least = check_number("least", least, 1)
        if form not in FORMS:
            raise ConfigError(f"data.task.form must be one of {', '.join(FORMS)}, got {form!r}")
        self.form = form
        self.vocab_size = n_symbols if form == "tag" else n_symbols + 1
        if form == "seq2seq":
            self.src_vocab_size = self.vocab_size  # one table can serve both sides
        if form == "tag":
            self.n_classes = n_symbols

    @property
    def gives(self) -> str:
        return self.form

    @property
    def question(self) -> tuple[str, ...]:
        return ("src", "src_pos") if self.form == "seq2seq" else ("ids", "pos")

    def symbols(self, ids: list[int]) -> list[str]:
        return ["[end]" if i == self.n_symbols else str(i) for i in ids]

    def order(self, src: np.ndarray, drawn: np.ndarray, real: np.ndarray) -> np.ndarray:
        """Which place of the source is written first, second, ...: (n, W), for the first `drawn` places of each row."""
        raise NotImplementedError

    def sources(self, src: np.ndarray, real: np.ndarray, order: np.ndarray) -> np.ndarray:
        """Places that answer each place of the answer, (n, W, K)."""
        return np.where(real, order, NO_SOURCE)[:, :, None]

    def most(self, seq_len: int) -> int:
        """The longest text, in symbols."""
        return {"seq2seq": seq_len - 1, "answers": (seq_len - 1) // 2, "tag": seq_len}[self.form]

    def check(self, seq_len: int) -> None:
        if self.most(seq_len) < self.least:
            raise ConfigError(
                f"rows of data.seq_len={seq_len} hold {self.most(seq_len)} symbols with data.task.form={self.form}, "
                f"fewer than data.task.least={self.least}: make seq_len larger"
            )

    def rows(self, rng: np.random.Generator, n: int, seq_len: int) -> Rows:
        drawn, real = lengths(rng, n, self.least, self.most(seq_len))
        src = np.where(real, rng.integers(self.n_symbols, size=real.shape), 0)
        order = np.where(real, self.order(src, drawn, real), 0)
        answer = np.take_along_axis(src, order, 1)
        gold = self.sources(src, real, order)
        if self.form == "tag":
            rows = {"ids": src, "pos": places(real), "targets": np.where(real, answer, IGNORED)}
        elif self.form == "seq2seq":
            rows, gold = self._translation(src, real, drawn, answer, gold)
        else:
            rows, gold = self._text(src, drawn, answer, gold, seq_len)
        return rows | {f"gold.{self.roles[0]}": gold}

    def _translation(
        self, src: np.ndarray, real: np.ndarray, drawn: np.ndarray, answer: np.ndarray, gold: np.ndarray
    ) -> tuple[Rows, np.ndarray]:
        """Source and target of an encoder-decoder: what is read there is the start and the answer."""
        n, most = src.shape
        written = np.arange(most + 1) <= drawn[:, None]
        end = np.full((n, 1), self.n_symbols)
        targets = np.concatenate([answer, np.zeros_like(end)], 1)
        targets[np.arange(n), drawn] = self.n_symbols
        rows = {
            "src": src,
            "src_pos": places(real),
            "ids": np.where(written, np.concatenate([end, answer], 1), 0),
            "pos": places(written),
            "targets": np.where(written, targets, IGNORED),
        }
        return rows, np.concatenate([gold, np.full_like(gold[:, :1], NO_SOURCE)], 1)

    def _text(
        self, src: np.ndarray, drawn: np.ndarray, answer: np.ndarray, gold: np.ndarray, seq_len: int
    ) -> tuple[Rows, np.ndarray]:
        """One row for a decoder: symbols, the sign, the answer, the sign; the last one is only a target."""
        most = src.shape[1]
        place, middle = np.arange(seq_len + 1)[None], drawn[:, None]
        behind = (place - middle - 1).clip(0, most - 1)  # place of the answer
        text = np.where(place < middle, src[:, np.arange(seq_len + 1).clip(0, most - 1)], self.n_symbols)
        is_answer = (place > middle) & (place <= 2 * middle)
        text = np.where(is_answer, np.take_along_axis(answer, behind, 1), text)
        read = place[:, :-1] <= 2 * middle
        asks = read & (place[:, :-1] >= middle)
        rows = {
            "ids": np.where(read, text[:, :-1], 0),
            "pos": places(read),
            "targets": np.where(asks, text[:, 1:], IGNORED),
        }
        source = np.take_along_axis(gold, behind[:, 1:, None], 1)
        return rows, np.where(is_answer[:, 1:, None] & asks[:, :, None], source, NO_SOURCE)
