"""How sharp attention is: what the rows of scores and weights of one attention say of its health.

A row is what one query gives to all keys. Rows that see few keys are left out: one key has all the weight whatever is
learned.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minitf.positions import segment

SKIPPED = 4  # a row counts if it sees more keys than that, or as many as any row does
SATURATED = 0.99  # a weight above it leaves nothing to the other keys


def same_document(q_pos: Tensor, k_pos: Tensor, crossing: bool) -> Tensor:
    """Pairs of two real tokens of the same document: bool (B or 1, 1, T, S).

    Args:
        q_pos, k_pos: positions (B or 1, T) and (B or 1, S).
        crossing: queries and keys are of two sequences, of one document each.
    """
    q, k = q_pos[:, None, :, None], k_pos[:, None, None, :]
    real = (q >= 0) & (k >= 0)
    return real if crossing else real & (segment(q) == segment(k))


def least_keys(n_visible: Tensor) -> int:
    """How many keys a row must see to count: more than SKIPPED, or as many as any row sees; at least 2.

    Args:
        n_visible: how many each query of the batch may read.
    """
    return max(2, min(SKIPPED + 1, int(n_visible.max()) if n_visible.numel() else 0))


def max_logit(scores: Tensor, pairs: Tensor) -> Tensor:
    """Largest |score| before the mask, over pairs of real tokens: a scalar, NaN where there is no pair.

    Healthy models stay below 60 (norm after the sublayer: 220), failing ones pass 1000. Source: Dehghani et al. 2023,
    section 3; Wortsman et al. 2023, section 3.1.

    Args:
        scores: (B,H,T,S), biases included.
        pairs: bool, broadcastable to it.
    """
    if not bool(pairs.any()):
        return scores.new_full((), torch.nan)
    return torch.where(pairs, scores.abs(), 0.0).max().float()


def saturated(weights: Tensor) -> Tensor:
    """Where one key has a weight above SATURATED: bool (...) from weights (...,S)."""
    return weights.amax(-1) > SATURATED


def jacobian_norm(weights: Tensor) -> Tensor:
    """norm_F(diag(p) - p p^T) of each row p: how much of a gradient comes through the softmax, 0 to 0.7.

    About 0.3 for rows of random scores; 0 for a one-hot row. Take the median over rows: few rows with much gradient
    hide many with none. Of another normaliser it is a summary of the weights, not its derivative.

    Args:
        weights: (...,S).

    Source: the derivative of softmax; science of missing scales: Vaswani et al. 2017, section 3.2.1, footnote 4.
    """
    p = weights.double()  # 1 - p of a nearly one-hot row would be all rounding
    squares = p.square()
    total = squares.sum(-1, keepdim=True)
    own = (squares * (1 - p).square()).sum(-1)  # the diagonal
    others = (squares * (total - squares)).sum(-1)
    return (own + others).clamp_min(0).sqrt().float()


def head_divergence(weights: Tensor) -> Tensor:
    """How far heads differ: entropy of their mean row minus the mean of their entropies, in bits, per row.

    0 where all heads are the same, log2 H where no two look at a common key; of two heads it is the Jensen-Shannon
    divergence.

    Args:
        weights: (H,...,S).

    Source: Lin 1991, equation 5.1 (the generalised Jensen-Shannon divergence).
    """
    p = weights.double()  # float32 would leave a remainder of 1e-7 for heads that are equal
    apart = torch.special.entr(p.mean(0)).sum(-1) - torch.special.entr(p).sum(-1).mean(0)
    return (apart.clamp_min(0) / math.log(2)).float()


def normalised_entropy(weights: Tensor, n_visible: Tensor) -> Tensor:
    """-sum_j p_j ln p_j / ln(number of visible keys) of each row: 1 uniform, 0 one-hot; 0 ln 0 is 0.

    Source: Zhai et al. 2023, section 2 (there not normalised).

    Args:
        weights: (...,S).
        n_visible: keys that the row may read, at least 2 where the value matters, shape (...).
    """
    return torch.special.entr(weights.float()).sum(-1) / n_visible.clamp_min(2).float().log()
