"""Looking back: one token that needs several others at once."""

from __future__ import annotations

import numpy as np

from minitf.data.synthetic import IGNORED, NO_SOURCE, Rows, SyntheticTask, check_number
from minitf.data.synthetic.unordered import most_frequent
from minitf.errors import ConfigError


class LookBack(SyntheticTask):
    """Random symbols; at every place report the symbols 1, 2, ... n_back places before, each by its own read-out.

    One token needs n_back others, so one attention pattern cannot serve it: a head for each distance does, or very
    sharp mixtures. Ids are 0 to n_symbols-1, all rows have T tokens; targets are (T, n_back), unscored where the row
    begins later. All answers are right in a solved model. No attention: a symbol is right with chance
    1/n_symbols. Order-blind: the most frequent one of the other symbols. Best offset: one read-out of n_back
    is right, and chance for the others.

    Args:
        n_symbols: how many symbols there are.
        n_back: how many places to look back.
    """

    gives = "tag"

    def __init__(self, n_symbols: int, n_back: int) -> None:
        self.n_symbols = check_number("n_symbols", n_symbols, 2)
        self.n_back = check_number("n_back", n_back, 1)
        self.vocab_size, self.n_classes = n_symbols, n_back * n_symbols

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(f"back_{k}" for k in range(1, self.n_back + 1))

    def check(self, seq_len: int) -> None:
        if seq_len <= self.n_back:
            raise ConfigError(
                f"data.seq_len ({seq_len}) must be larger than data.task.n_back ({self.n_back}), or nothing is asked"
            )

    def rows(self, rng: np.random.Generator, n: int, seq_len: int) -> Rows:
        ids = rng.integers(self.n_symbols, size=(n, seq_len))
        source = np.arange(seq_len)[:, None] - np.arange(1, self.n_back + 1)  # (T, n_back)
        there = source >= 0
        targets = np.where(there, ids[:, source.clip(0)], IGNORED)
        gold = np.broadcast_to(np.where(there, source, NO_SOURCE), (n, seq_len, self.n_back))
        return {"ids": ids, "targets": targets} | {
            f"gold.{role}": gold[:, :, k : k + 1] for k, role in enumerate(self.roles)
        }

    def baselines(self, seq_len: int) -> dict[str, float]:
        n_asked = seq_len - np.arange(1, self.n_back + 1)
        chance = 1 / self.n_symbols
        return {
            "no attention": chance,
            # the other symbols of the row: each of them as likely stands where it is asked for
            "order-blind": float(most_frequent(self.n_symbols, seq_len - 1)[-1]),
            "best offset": float((n_asked[0] + chance * n_asked[1:].sum()) / n_asked.sum()),
        }

    def answer_symbols(self, ids: list[int]) -> list[str]:
        return self.symbols(ids)
