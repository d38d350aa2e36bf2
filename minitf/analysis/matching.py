"""Heads of different seeds side by side: their numbers mean nothing, so the best permutation is found first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from minitf.errors import DataError


@dataclass(frozen=True)
class Matching:
    """Which heads of a seed stand for those of the reference.

    Args:
        order: head h of the reference is head order[h] of the other.
        similarity: mean over heads of what `similarity` said of the pairs.
    """

    order: tuple[int, ...]
    similarity: float


@dataclass(frozen=True)
class RoleStability:
    """How often a role is found, and how strong.

    Args:
        role: its name.
        share: of the seeds in which some head scores at least the level.
        best: the largest score of each seed; claim nothing from their mean alone.
        spread: largest minus smallest of these.
        matched: for each head of the reference, in the order of its sites, its score in every seed, after matching.
    """

    role: str
    share: float
    best: tuple[float, ...]
    spread: float
    matched: tuple[tuple[float, ...], ...]


def score_similarity(a: Tensor, b: Tensor) -> Tensor:
    """(H,R) role scores of two seeds -> (H,H): minus the distance of each pair of heads, 0 where they are equal."""
    return -torch.cdist(a.double(), b.double())


def pattern_similarity(a: Tensor, b: Tensor) -> Tensor:
    """Attention (B,H,T,S) of two seeds on the same batch -> (H,H): 1 - mean total variation distance, 0 to 1."""
    pairs = (a.double()[:, :, None] - b.double()[:, None]).abs().sum(-1) / 2  # (B,H,H,T)
    return 1 - pairs.mean((0, 3))


def best_permutation(similarity: Tensor) -> Matching:
    """The permutation of columns with the largest sum, exactly, by the Hungarian method in O(H^3).

    Args:
        similarity: (H,H), finite; row h is head h of the reference.

    Raises:
        DataError: not square or not finite.

    Source: Kuhn 1955; the form with potentials: Jonker and Volgenant 1987.
    """
    if similarity.dim() != 2 or similarity.size(0) != similarity.size(1) or not bool(similarity.isfinite().all()):
        raise DataError(f"similarity must be a square of finite numbers, got {tuple(similarity.shape)}")
    costs = (-similarity.double()).tolist()
    n = len(costs)
    order = _assign(costs)
    return Matching(tuple(order), -sum(costs[i][j] for i, j in enumerate(order)) / n if n else math.nan)


def match_scores(reference: Mapping, other: Mapping) -> dict:
    """Match heads within each layer by their role scores.

    Args:
        reference, other: site (or any name of a layer) -> (H,R), a row of role scores for each head.

    Returns:
        the same names -> Matching.

    Raises:
        DataError: other sites or shapes, or scores that are NaN.
    """
    if list(reference) != list(other) or any(reference[k].shape != other[k].shape for k in reference):
        raise DataError("heads can be matched only between models of the same layers and number of heads")
    return {name: best_permutation(score_similarity(reference[name], other[name])) for name in reference}


def role_stability(seeds: Sequence[Mapping], roles: Sequence[str], level: float = 0.4) -> list[RoleStability]:
    """For each role the share of seeds that have it, and its scores head by head after matching to the first seed.

    Args:
        seeds: for each seed, site -> (H,R) role scores.
        roles: names of the R columns.
        level: from which score on a head has the role, such as 0.4 for induction and previous-token heads.

    Raises:
        DataError: no seed, or as `match_scores`.
    """
    if not seeds:
        raise DataError("give the role scores of at least one seed")
    first = seeds[0]
    matched = []  # for each seed (heads, R)
    for other in seeds:
        found = match_scores(first, other)
        matched.append(torch.cat([other[name][list(found[name].order)] for name in first]))
    scores = torch.stack(matched)  # (seeds, heads, R)
    stable = []
    for i, role in enumerate(roles):
        best = scores[:, :, i].amax(1)
        rows = tuple(tuple(row) for row in scores[:, :, i].T.tolist())
        share = float((best >= level).double().mean())
        stable.append(RoleStability(role, share, tuple(best.tolist()), float(best.max() - best.min()), rows))
    return stable


def _assign(costs: list[list[float]]) -> list[int]:
    """Row -> column of the assignment with the smallest sum: each row is added along a cheapest path of exchanges."""
    n = len(costs)
    of_row, of_column = [0.0] * (n + 1), [0.0] * (n + 1)  # potentials; place 0 stands for the row that is added
    owner = [0] * (n + 1)  # of each column
    for row in range(1, n + 1):
        owner[0], column = row, 0
        nearest, before, done = [math.inf] * (n + 1), [0] * (n + 1), [False] * (n + 1)
        while owner[column]:
            done[column], i, step, following = True, owner[column], math.inf, 0
            for j in range(1, n + 1):
                if done[j]:
                    continue
                reduced = costs[i - 1][j - 1] - of_row[i] - of_column[j]
                if reduced < nearest[j]:
                    nearest[j], before[j] = reduced, column
                if nearest[j] < step:
                    step, following = nearest[j], j
            for j in range(n + 1):
                if done[j]:
                    of_row[owner[j]] += step
                    of_column[j] -= step
                else:
                    nearest[j] -= step
            column = following
        while column:
            owner[column], column = owner[before[column]], before[column]
    order = [0] * n
    for j in range(1, n + 1):
        order[owner[j] - 1] = j - 1
    return order
