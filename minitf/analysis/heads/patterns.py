"""Patterns of attention that need no gold: how sharp rows are, and what they look at.

In all functions `weights` are float (B,H,T,S), `visible` bool (B,T,S) says what the mask allows, `rows` bool (B,T) says
which queries count (see `rows.counted`), and the result is an `Average` of shape (H,).
"""

from __future__ import annotations

import torch
from torch import Tensor

from minitf.analysis.heads.average import Average, over_rows


def row_mass(weights: Tensor, rows: Tensor) -> Average:
    """mean_i sum_j A_ij: 1 for softmax; less, or more, where rows need not sum to 1."""
    return over_rows(weights.sum(-1), rows)


def distributions(weights: Tensor) -> Tensor:
    """Rows divided by their sums, (B,H,T,S): what share of its weight goes where. A row of nothing stays 0."""
    total = weights.sum(-1, keepdim=True)
    return weights / total.where(total > 0, 1.0)


def entropy(weights: Tensor, rows: Tensor) -> Average:
    """E = mean_i -sum_j A_ij ln A_ij in nats, of rows divided by their sums: 0 one-hot .. ln S uniform.

    Source: Zhai et al. 2023 (attention entropy collapse); 0 ln 0 is 0, and no epsilon is added.
    """
    return over_rows(row_entropy(weights), rows)


def normalised_entropy(weights: Tensor, visible: Tensor, rows: Tensor) -> Average:
    """mean_i E_i / ln n_i, n_i the keys that the mask allows the row: 0 one-hot .. 1 uniform over what can be seen.

    Rows that see a single key are not counted. Source: as for `entropy`; for causal rows n_i is i + 1.
    """
    n = visible.sum(-1)
    rows = rows & (n > 1)
    return over_rows(row_entropy(weights) / n.clamp_min(2).log()[:, None], rows)


def row_entropy(weights: Tensor) -> Tensor:
    """Entropy in nats of each row, divided by its sum: (B,H,T)."""
    return torch.special.entr(distributions(weights)).sum(-1)


def confidence(weights: Tensor, rows: Tensor, dropped: Tensor | None = None) -> Average:
    """mean_i max_j A_ij: 0 .. 1, above 0.8 a confident head.

    Args:
        weights, rows: as everywhere.
        dropped: bool (B,T,S), keys that do not count, such as the first token, on which idle heads rest.

    Source: Voita et al. 2019, section 4; there the end of the sentence does not count.
    """
    if dropped is not None:
        weights = weights.masked_fill(dropped[:, None], 0.0)
    return over_rows(weights.amax(-1), rows)


def mass_on(weights: Tensor, targets: Tensor, visible: Tensor, rows: Tensor) -> Average:
    """mean_i sum_(j in targets_i) A_ij: 0 .. 1, over the rows that may read a target.

    Args:
        weights, visible, rows: as everywhere.
        targets: bool (B,T,S).
    """
    targets = targets & visible
    mass = torch.einsum("bhts,bts->bht", weights, targets.to(weights.dtype))
    return over_rows(mass, rows & targets.any(-1))


def duplicate_token(weights: Tensor, ids: Tensor, k_pos: Tensor, visible: Tensor, rows: Tensor) -> Average:
    """Mass on earlier tokens of the same id: 0 .. 1. Source: Wang et al. 2023 (IOI), duplicate token heads.

    Args:
        weights, visible, rows: as everywhere, of self-attention.
        ids: int64 (B,T).
        k_pos: int64 (B,T).
    """
    return mass_on(weights, earlier_copies(ids, k_pos), visible, rows)


def prefix_matching(weights: Tensor, ids: Tensor, k_pos: Tensor, visible: Tensor, rows: Tensor) -> Average:
    """Mass on the successors of earlier tokens of the same id: 0 .. 1, above 0.4 an induction head.

    Rows whose token came before count; all its occurrences do. In text that repeats a segment of different tokens it is
    the score of `periodic_prefix_matching`, but for the very first token: it follows no earlier one.

    Args:
        weights, ids, k_pos, visible, rows: as for `duplicate_token`.

    Source: Olsson et al. 2022, prefix matching score.
    """
    return mass_on(weights, successors(ids, k_pos), visible, rows)


def earlier_copies(ids: Tensor, k_pos: Tensor) -> Tensor:
    """Where key j is an earlier token with the id of query i: bool (B,T,T)."""
    same = (ids[:, :, None] == ids[:, None]) & (k_pos >= 0)[:, None]
    return same & torch.ones(ids.size(1), ids.size(1), dtype=torch.bool, device=ids.device).tril(-1)


def successors(ids: Tensor, k_pos: Tensor) -> Tensor:
    """Where key j follows, in its document, an earlier token with the id of query i: bool (B,T,T); j <= i."""
    found = earlier_copies(ids, k_pos).roll(1, -1)
    follows = torch.zeros_like(k_pos, dtype=torch.bool)
    follows[:, 1:] = (k_pos[:, :-1] >= 0) & (k_pos[:, 1:] == k_pos[:, :-1] + 1)
    return found & follows[:, None]


def periodic_prefix_matching(weights: Tensor, period: Tensor, start: int, visible: Tensor, rows: Tensor) -> Average:
    """mean over i in later copies of sum_(n >= 1) A[i, i - n p + 1]: 0 .. 1, above 0.4 an induction head.

    Args:
        weights, visible, rows: as everywhere, of rows that repeat a segment without padding on the left.
        period: int64 (B,), p.
        start: column of the first token of the first copy: 1 behind a beginning token.

    Source: Olsson et al. 2022, prefix matching score on repeated random tokens.
    """
    column = torch.arange(weights.size(-1), device=weights.device)
    back = column[:, None] + 1 - column  # i - j + 1
    p = period[:, None, None]
    targets = (back >= p) & (back % p == 0) & (column >= start)
    later = column >= start + period[:, None]
    return mass_on(weights, targets, visible, rows & later)
