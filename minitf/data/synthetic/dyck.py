"""Nested brackets: what a stack is for."""

from __future__ import annotations

import numpy as np

from minitf.data.synthetic import COUNTED, IGNORED, NO_SOURCE, Rows, SyntheticTask, check_number
from minitf.errors import ConfigError


class Dyck(SyntheticTask):
    """Well nested words of `n_types` kinds of brackets, at most `max_depth` open at once; say which kind is closed.

    Id 0 begins a row, then come T brackets: ids 1 to n_types open, the next n_types close. Where nothing else forces it
    a word opens or closes with chance 1/2; kinds are drawn evenly. Scored are the places after which a bracket is
    closed: the answer is the partner of the last one still open (gold). Two layers of attention solve it: one finds the
    depth of each place, the other attends to the last opening one of the same depth; all answers are right then.
    No attention: right where the token at hand opens, and 1/n_types elsewhere. Order-blind: it can be seen which kinds
    are open, and the most frequent of them is guessed. Best offset: the token at hand, or one a little before it.

    Source: Hewitt et al. 2020 (Dyck-(k,m)); Yao et al. 2021 (two layers are enough).

    Args:
        n_types: kinds of brackets, k.
        max_depth: most brackets that are open at once, m.
    """

    gives = "answers"
    roles = ("opener",)

    def __init__(self, n_types: int, max_depth: int) -> None:
        self.n_types = check_number("n_types", n_types, 1)
        self.max_depth = check_number("max_depth", max_depth, 1)
        self.vocab_size = 1 + 2 * n_types

    def check(self, seq_len: int) -> None:
        if seq_len % 2:
            raise ConfigError(f"data.seq_len ({seq_len}) must be even for dyck: each bracket that opens is closed")

    def rows(self, rng: np.random.Generator, n: int, seq_len: int) -> Rows:
        row, depth = np.arange(n), np.zeros(n, dtype=np.int64)
        open_at = np.zeros((n, self.max_depth + 1), dtype=np.int64)  # column of the bracket open at each depth
        text = np.zeros((n, seq_len + 1), dtype=np.int64)
        targets, gold = np.full((n, seq_len), IGNORED), np.full((n, seq_len, 1), NO_SOURCE)
        for t in range(1, seq_len + 1):
            may_open = (depth < self.max_depth) & (depth < seq_len - t)
            opens = may_open & ((depth == 0) | (rng.random(n) < 0.5))
            source = open_at[row, depth]
            closing = text[row, source] + self.n_types
            text[:, t] = np.where(opens, rng.integers(1, self.n_types + 1, size=n), closing)
            targets[~opens, t - 1] = closing[~opens]
            gold[~opens, t - 1, 0] = source[~opens]
            depth += np.where(opens, 1, -1)
            open_at[row[opens], depth[opens]] = t
        return {"ids": text[:, :-1], "targets": targets, "gold.opener": gold}

    def baselines(self, seq_len: int) -> dict[str, float]:
        rows = self.rows(np.random.default_rng(0), COUNTED, seq_len)
        ids, scored = rows["ids"], rows["targets"] != IGNORED
        most, total = (
            np.zeros_like(ids),
            np.zeros_like(ids),
        )  # brackets that are open, of the most frequent kind and all
        for kind in range(1, self.n_types + 1):
            still_open = ((ids == kind).astype(int) - (ids == kind + self.n_types)).cumsum(1)
            most, total = np.maximum(most, still_open), total + still_open
        at_hand = rows["gold.opener"][:, :, 0] == np.arange(seq_len)
        # kinds are drawn independently, so each of the open brackets is as likely the last one
        likeliest = np.where(at_hand, 1, most / total.clip(1))
        return {
            **super().baselines(seq_len),
            "no attention": float(np.where(at_hand, 1, 1 / self.n_types)[scored].mean()),
            "order-blind": float(likeliest[scored].mean()),
        }

    def symbols(self, ids: list[int]) -> list[str]:
        opening, closing = (
            [pairs[kind] if kind < len(pairs) else f"{pairs[0]}{kind + 1}" for kind in range(self.n_types)]
            for pairs in ("([{<", ")]}>")
        )
        return [["[bos]", *opening, *closing][i] for i in ids]
