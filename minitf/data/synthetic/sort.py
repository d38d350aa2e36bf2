"""Sorting."""

from __future__ import annotations

import numpy as np

from minitf.data.synthetic import NO_SOURCE
from minitf.data.synthetic.rewriting import Rewriting


class Sort(Rewriting):
    """Read symbols and write them in rising order, equal ones as often as they came. See `Rewriting` for the rest.

    A head that attends to the equals of the last symbol, and to the smallest larger one, solves it; all answers are
    right then. Where symbols stand does not matter, so order-blind models can solve it. No attention: the last symbol
    again, or the end. Best offset: hardly better.
    """

    roles = ("sort",)

    def order(self, src: np.ndarray, drawn: np.ndarray, real: np.ndarray) -> np.ndarray:
        return np.argsort(np.where(real, src, self.n_symbols), axis=1, kind="stable")

    def sources(self, src: np.ndarray, real: np.ndarray, order: np.ndarray) -> np.ndarray:
        answer = np.take_along_axis(src, order, 1)
        equal = (answer[:, :, None] == src[:, None, :]) & real[:, None, :] & real[:, :, None]
        return np.where(equal, np.arange(src.shape[1]), NO_SOURCE)
