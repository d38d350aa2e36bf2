"""Rows of which some places are left out, moved together."""

from __future__ import annotations

import numpy as np


def packed(text: np.ndarray, there: np.ndarray, seq_len: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Move the tokens that are there to the front of their rows, in their order, and fill up with 0.

    Args:
        text: ids (n, S).
        there: which of them belong to the row, bool (n, S).
        seq_len: tokens of the new rows, T; what is longer is cut.

    Returns:
        ids (n, T); which of them are real, bool (n, T); the new column of each old place (n, S), of those that are
        there.
    """
    n, width = text.shape
    column = there.cumsum(1) - 1
    ids = np.zeros((n, max(width, seq_len)), dtype=np.int64)
    row, old = np.nonzero(there)
    ids[row, column[row, old]] = text[row, old]
    real = np.arange(seq_len) < there.sum(1, keepdims=True)
    return ids[:, :seq_len], real, column
