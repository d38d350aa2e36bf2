"""Sinks: weight that goes to the first token because it must go somewhere."""

from __future__ import annotations

from torch import Tensor

from minitf.analysis.heads.average import Average
from minitf.analysis.heads.patterns import mass_on

SINK = 0.3  # alpha_1 above which a head has a sink


def sink_mass(weights: Tensor, first: Tensor, visible: Tensor, rows: Tensor) -> Average:
    """alpha_k = mean_i A[i, k] over the rows that may read token k: (H,), 0 .. 1, above 0.3 a sink.

    Args:
        weights: (B,H,T,S).
        first: bool (B,T,S), which key is token k of the query's document, see `rows.first_of_document`; with the
            first one it is alpha_1 of the paper, which counts from 1.
        visible: bool (B,T,S).
        rows: bool (B,T), which queries count.

    Source: Gu et al. 2024; a share of heads depends on the threshold and on T, so state both.
    """
    return mass_on(weights, first, visible, rows)


def sink_share(mass: Tensor, threshold: float = SINK) -> Tensor:
    """Share of heads (...,H) whose sink mass is above the threshold: (...), 0 .. 1. Source: Gu et al. 2024."""
    return (mass > threshold).double().mean(-1)


def active_and_dormant(
    weights: Tensor, first: Tensor, visible: Tensor, rows: Tensor, has_work: Tensor
) -> tuple[Average, Average]:
    """Sink mass of queries that have something to fetch, and of those that have not; each (H,), 0 .. 1.

    The contrast is the evidence: an active-dormant head rests on the first token while there is nothing to fetch.

    Args:
        weights, first, visible, rows: as for `sink_mass`.
        has_work: bool (B,T).

    Source: Guo et al. 2024 (active-dormant attention heads).
    """
    return tuple(mass_on(weights, first, visible, rows & which) for which in (has_work, ~has_work))


def value_ratio(norms: Tensor, is_first: Tensor, real: Tensor) -> Average:
    """norm(V_first) / mean norm(V_other): (H,), from 0; below 0.5 the first token is drained, it gives nothing.

    A large one says that what is read there is used. Rows that have no other token do not count; in packed rows the
    first tokens of all documents count as first ones.

    Args:
        norms: (B,H,S), lengths of the values.
        is_first: bool (B,S), first tokens.
        real: bool (B,S), no padding.

    Source: Guo et al. 2024, value-state drains.
    """
    first, other = (is_first & real)[:, None].double(), (~is_first & real)[:, None].double()
    norms = norms.double()
    n_first, n_other = first.sum(-1), other.sum(-1)
    mean_other = (norms * other).sum(-1) / n_other.clamp_min(1)
    there = (n_first > 0) & (n_other > 0) & (mean_other > 0)  # (B,H)
    ratio = (norms * first).sum(-1) / n_first.clamp_min(1) / mean_other.where(there, 1.0)
    return Average((ratio * there).sum(0), there.double().sum(0))
