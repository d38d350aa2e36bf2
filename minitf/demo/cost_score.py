"""What a score costs, by formula: from queries and keys to one number for each pair."""

from __future__ import annotations

from functools import singledispatch

from minitf.blocks.score import Score
from minitf.blocks.score.additive import Additive
from minitf.blocks.score.cosine import Cosine
from minitf.blocks.score.dot import Dot
from minitf.blocks.score.gat import GAT
from minitf.blocks.score.general import General
from minitf.blocks.score.l2 import L2
from minitf.blocks.score.log_length import LogLength
from minitf.blocks.score.scaled_dot import ScaledDot
from minitf.blocks.score.soft_cap import SoftCap
from minitf.blocks.score.temperature import Temperature
from minitf.demo.cost import Cost, Sizes, if_counted


def of_score(score: Score, n: Sizes) -> Cost | None:
    """The cost of a score; a mask saves nothing by definition. None: there is no formula for it."""
    return if_counted(_formula(score, n), score)


@singledispatch
def _formula(score: Score, n: Sizes) -> Cost | None:
    return None


@_formula.register(Dot)
@_formula.register(ScaledDot)
@_formula.register(L2)  # lengths of q and k are sums of squares, not products of matrices
def _product(score: Score, n: Sizes) -> Cost:
    """q.k of every pair."""
    return Cost(flops=2 * n.B * n.H * n.T * n.S * n.d)


@_formula.register(Cosine)
@_formula.register(Temperature)
def _with_factor(score: Score, n: Sizes) -> Cost:
    """q.k of every pair, and a learned number for each head."""
    return _product(score, n) + Cost(params=n.H)


@_formula.register
def _general(score: General, n: Sizes) -> Cost:
    """A matrix for each head that its queries go through, then q.k."""
    return _by_head(n, n.T) + _product(score, n)


@_formula.register
def _additive(score: Additive, n: Sizes) -> Cost:
    """Two matrices for each head, for its queries and its keys; then d hidden numbers of every pair, times v.

    In pieces, what the backward pass computes again are the hidden numbers, which takes no product of matrices.
    """
    return _by_head(n, n.T) + _by_head(n, n.S) + _product(score, n) + Cost(params=n.H * n.d)


@_formula.register
def _gat(score: GAT, n: Sizes) -> Cost:
    """One number from each query and one from each key; their sums are elementwise."""
    return Cost(params=2 * n.H * n.d, flops=2 * n.B * n.H * (n.T + n.S) * n.d)


@_formula.register(SoftCap)
@_formula.register(LogLength)
def _wrapped(score: SoftCap | LogLength, n: Sizes) -> Cost | None:
    """What is done to the scores afterwards is elementwise."""
    return of_score(score.inner, n)


def _by_head(n: Sizes, length: int) -> Cost:
    """A (d,d) matrix for each head, and every token of a row of that length multiplied by it."""
    return Cost(params=n.H * n.d**2, flops=2 * n.B * n.H * length * n.d**2)
