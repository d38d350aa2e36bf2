"""Copying."""

from __future__ import annotations

import numpy as np

from minitf.data.synthetic.rewriting import Rewriting
from minitf.data.synthetic.unordered import order_blind


class Copy(Rewriting):
    """Read symbols and write them as they are. Vocabulary, lengths and forms: see `Rewriting`.

    A head that attends to the place of the symbol that comes next solves it; all answers are right then. No attention:
    a symbol is right with chance 1/n_symbols, or the end is guessed. Order-blind: the symbol that is left most often;
    a decoder, whose text holds what it has read and written, must guess which ones are left. Best offset:
    form=tag has the answer at hand, so any model solves it; in the other forms the source of an encoder-decoder stands
    at the same place, and a decoder's stands as far back as the text is long, which differs from row to row.
    """

    roles = ("copy",)

    def order(self, src: np.ndarray, drawn: np.ndarray, real: np.ndarray) -> np.ndarray:
        return np.broadcast_to(np.arange(src.shape[1]), src.shape)

    def baselines(self, seq_len: int) -> dict[str, float]:
        return {**super().baselines(seq_len), **order_blind(self, seq_len, in_place=1.0)}
