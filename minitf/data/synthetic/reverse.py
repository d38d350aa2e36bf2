"""Reversal."""

from __future__ import annotations

import numpy as np

from minitf.data.synthetic.rewriting import Rewriting
from minitf.data.synthetic.unordered import order_blind


class Reverse(Rewriting):
    """Read symbols and write them backwards. Vocabulary, lengths and forms: see `Rewriting`.

    A head that attends from place t to place n-1-t solves it; all answers are right then. No attention: a symbol is
    right with chance 1/n_symbols, or the end is guessed. Order-blind: the symbol that is left most often. Best offset:
    hardly better than no attention, because each answer has another distance. form=tag with rows of one length shows
    what depth does to the token's own content, which is needed at the last layer.
    """

    roles = ("reverse",)

    def order(self, src: np.ndarray, drawn: np.ndarray, real: np.ndarray) -> np.ndarray:
        return drawn[:, None] - 1 - np.arange(src.shape[1])

    def baselines(self, seq_len: int) -> dict[str, float]:
        return {**super().baselines(seq_len), **order_blind(self, seq_len)}
