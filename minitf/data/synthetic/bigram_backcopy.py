"""Bigrams and back-copying: where attention has nothing to do most of the time, and sinks form."""

from __future__ import annotations

import numpy as np

from minitf.data.synthetic import COUNTED, NO_SOURCE, Rows, SyntheticTask, check_number
from minitf.errors import ConfigError


class BigramBackcopy(SyntheticTask):
    """A Markov chain; after a trigger comes the token that stood before it.

    Id 0 begins each row, ids 1 to n_triggers are triggers, all others ordinary symbols; the chain's transitions are
    softmax of 2 N(0,1), one chain for every seed and split. Every next token is scored. After an ordinary symbol the
    chain's matrix says all, and attention is not needed; after a trigger the answer is the token before it, which only
    attention to the place before can give (gold). So heads are idle at most places, and put their weight on the
    beginning. A solved model is right at every trigger, and elsewhere as often as the likeliest transition (`solved`).
    No attention: the likeliest transition everywhere; best offset: the same, or the token before, whichever is right
    more often.

    Source: Guo et al. 2024 (active-dormant attention heads), section 2.

    Args:
        n_symbols: ids in all, the beginning among them.
        n_triggers: how many of them are triggers.
        chain: which transitions: the seed that draws them.
    """

    gives = "answers"
    roles = ("backcopy",)

    def __init__(self, n_symbols: int, n_triggers: int, chain: int = 0) -> None:
        self.n_symbols = check_number("n_symbols", n_symbols, 4)
        self.n_triggers = check_number("n_triggers", n_triggers, 1)
        if n_triggers > n_symbols - 3:
            raise ConfigError(
                f"data.task.n_triggers ({n_triggers}) must leave two ordinary symbols beside the beginning: at most "
                f"{n_symbols - 3} of n_symbols ({n_symbols})"
            )
        self.chain = check_number("chain", chain, 0)
        self.vocab_size = n_symbols

    @property
    def transitions(self) -> np.ndarray:
        """(V, V) probabilities of the next token; nothing leads back to the beginning."""
        logits = 2 * np.random.default_rng(self.chain).standard_normal((self.n_symbols, self.n_symbols))
        logits[:, 0] = -np.inf
        logits[0, 1 : 1 + self.n_triggers] = -np.inf  # a trigger needs something before it
        weights = np.exp(logits)
        return weights / weights.sum(1, keepdims=True)

    @property
    def solved(self) -> float:
        rows = self.rows(np.random.default_rng(0), COUNTED, 32)
        likeliest = self.transitions.max(1)[rows["ids"]]
        return float(np.where(self._triggers(rows["ids"]), 1.0, likeliest).mean())

    def check(self, seq_len: int) -> None:
        if seq_len < 3:
            raise ConfigError(f"data.seq_len ({seq_len}) must be at least 3: a beginning, a symbol and a trigger")

    def rows(self, rng: np.random.Generator, n: int, seq_len: int) -> Rows:
        cumulative = self.transitions.cumsum(1)
        text = np.zeros((n, seq_len + 1), dtype=np.int64)
        for t in range(1, seq_len + 1):
            last = text[:, t - 1]
            drawn = (cumulative[last] < rng.random((n, 1)) * cumulative[last, -1:]).sum(1)
            text[:, t] = np.where(self._triggers(last), text[:, t - 2], drawn)
        ids = text[:, :-1]
        gold = np.where(self._triggers(ids), np.arange(seq_len) - 1, NO_SOURCE)
        return {"ids": ids, "targets": text[:, 1:], "gold.backcopy": gold[:, :, None]}

    def _triggers(self, ids: np.ndarray) -> np.ndarray:
        return (ids >= 1) & (ids <= self.n_triggers)

    def symbols(self, ids: list[int]) -> list[str]:
        return ["[bos]" if i == 0 else f"T{i}" if i <= self.n_triggers else str(i) for i in ids]
