"""How far guessing gets without order, where random symbols are copied or reversed: from what is seen, not where."""

from __future__ import annotations

from math import factorial

import numpy as np

from minitf.data.synthetic.rewriting import Rewriting

ROWS = 1000  # that are drawn, or places of rows
MOST = 40  # symbols of a text that is gone on with; the numbers of longer ones have too many digits


def most_frequent(n_symbols: int, most: int) -> np.ndarray:
    """For 1, 2, ... `most` random symbols the share that the most frequent of them has, (most,)."""
    drawn = np.random.default_rng(0).integers(n_symbols, size=(ROWS, most))
    counts, largest = np.zeros((ROWS, n_symbols), dtype=np.int64), np.zeros(ROWS, dtype=np.int64)
    shares = []
    for i in range(most):
        largest = np.maximum(largest, _count(counts, drawn[:, i]))
        shares.append(largest.mean() / (i + 1))
    return np.array(shares)


def order_blind(task: Rewriting, seq_len: int, in_place: float | None = None) -> dict[str, float]:
    """The baseline "order-blind" of copying and reversing, which is the same unless answers stand in place.

    Args:
        task: says the form, and which texts there are.
        seq_len: tokens of the longest row.
        in_place: that of form=tag; None: the one of reversed texts.
    """
    sizes = (task.n_symbols, task.least, task.most(seq_len))
    if task.form == "seq2seq":
        return {"order-blind": written_beside(*sizes)}
    if task.form == "tag":
        return {"order-blind": own_place(*sizes) if in_place is None else in_place}
    return {"order-blind": written_behind(*sizes)} if sizes[2] <= MOST else {}


def written_beside(n_symbols: int, least: int, most: int) -> float:
    """Encoder-decoders know what is read and what is written: of what is left the most frequent, and then the end."""
    lengths = np.arange(least, most + 1)
    right = most_frequent(n_symbols, most).cumsum()[lengths - 1] + 1
    return float(right.sum() / (lengths + 1).sum())


def own_place(n_symbols: int, least: int, most: int) -> float:
    """A reversed text at the places of its symbols: the other ones are known, and the one at hand is its own answer in
    the middle of an odd number, wherever that is.
    """
    rng = np.random.default_rng(0)
    own, others = rng.integers(n_symbols, size=ROWS), rng.integers(n_symbols, size=(ROWS, most - 1))
    counts, largest = np.zeros((ROWS, n_symbols), dtype=np.int64), np.zeros(ROWS, dtype=np.int64)
    right = np.zeros(most + 1)
    right[1] = 1.0
    for n in range(2, most + 1):
        largest = np.maximum(largest, _count(counts, others[:, n - 2]))
        middle = n % 2 / n
        same = middle + (1 - middle) * counts[np.arange(ROWS), own] / (n - 1)
        right[n] = np.maximum(same, (1 - middle) * largest / (n - 1)).mean()
    lengths = np.arange(least, most + 1)
    return float((right[lengths] * lengths).sum() / lengths.sum())


def written_behind(n_symbols: int, least: int, most: int) -> float:
    """A decoder knows the symbols of both texts, all in one: what is written is there twice.

    Exact for each drawn place, by Bayes' rule over how many symbols are written and which. Up to `MOST` symbols.
    """
    rng = np.random.default_rng(0)
    lengths = np.arange(least, most + 1)
    n = rng.choice(lengths, p=(lengths + 1) / (lengths + 1).sum(), size=ROWS)  # a row has n + 1 places that ask
    written = rng.integers(n + 1)
    rows, text = np.arange(ROWS), rng.integers(n_symbols, size=(ROWS, most))
    counts = np.zeros((ROWS, n_symbols), dtype=np.int64)
    for i in range(most):
        counts[rows, text[:, i]] += (i < n) * 1 + (i < written)
    begun, last = written > 0, text[rows, (written - 1).clip(0)]
    own = np.where(begun, counts[rows, last], 0)
    counts[rows[begun], last[begun]] = 0
    others = -np.sort(-counts, 1)[:, :most]
    columns = [own, *others.T[others.any(0)]]

    # of each symbol, by how many of it are written: 1 / (ways to arrange it), and that times the number that is left
    p = np.arange(most + 1)
    factorials = np.array([float(factorial(i)) for i in range(2 * most + 1)])
    plain = [(c[:, None] >= 2 * p) / factorials[p] / factorials[(c[:, None] - 2 * p).clip(0)] for c in columns]
    plain[0][begun] *= p  # the one at hand was written last
    left = [share * (c[:, None] - 2 * p) for share, c in zip(plain, columns, strict=True)]
    before, behind = [_one(most)], [_one(most)]
    for first, last_one in zip(plain, reversed(plain), strict=True):
        before.append(_times(before[-1], first))
        behind.append(_times(behind[-1], last_one))

    n_left = (n + written)[:, None] - 2 * p
    can_be = (n_left >= 0) & (n_left + p >= least) & (n_left + p <= most) & ((p > 0) == begun[:, None])
    weight = np.where(can_be, factorials[p] * factorials[n_left.clip(0, most)], 0.0)
    weight *= float(n_symbols) ** (p - most) / p.clip(1)
    scores = [(weight * before[-1] * (n_left == 0)).sum(1)]  # of the end, then of each symbol
    for i, share in enumerate(left):
        ways = _times(_times(before[i], share), behind[-2 - i])
        scores.append((weight * ways / n_left.clip(1)).sum(1))
    return float((np.max(scores, 0) / (weight * before[-1]).sum(1)).mean())


def _count(counts: np.ndarray, symbols: np.ndarray) -> np.ndarray:
    """Count one more symbol of each row; returns its new count."""
    rows = np.arange(len(counts))
    counts[rows, symbols] += 1
    return counts[rows, symbols]


def _one(most: int) -> np.ndarray:
    return np.eye(1, most + 1).repeat(ROWS, 0)


def _times(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Products of polynomials, row by row, as long as the factors; `b` has few coefficients."""
    found = np.zeros_like(a)
    for k in np.flatnonzero(b.any(0)):
        found[:, k:] += a[:, : a.shape[1] - k] * b[:, k : k + 1]
    return found
