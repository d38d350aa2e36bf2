"""How different the tokens of a document still are: what the residual stream of one layer says of its health.

All functions take X (N,T,D), N documents of up to T tokens, and `real` (N,T), True where a token is; others may hold
anything. They give one float32 value a document, NaN where it has fewer than two tokens.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from minitf.positions import segment

LEAST = 2  # tokens that can be alike


def documents(pos: Tensor) -> tuple[Tensor, Tensor]:
    """Where the documents of a batch lie: each row, or in packed rows each segment, without its padding.

    Args:
        pos: int64 (B,T) positions, see `minitf.positions`.

    Returns:
        index: int64 (N,T') into the B * T tokens of the batch, each document's own in front.
        real: bool (N,T'), False where a document has no further token.
    """
    rows, length = pos.shape
    n_segments = max(1, int(segment(pos).max()) + 1)
    place = torch.where(pos >= 0, segment(pos), 0)[:, :, None] == torch.arange(n_segments, device=pos.device)
    member = (place & (pos >= 0)[:, :, None]).permute(0, 2, 1).reshape(-1, length)  # (B * segments, T)
    row = torch.arange(rows, device=pos.device).repeat_interleave(n_segments)
    there = member.any(1)
    member, row = member[there], row[there]
    longest = int(member.sum(1).max()) if len(member) else 0
    order = (~member).int().argsort(dim=1, stable=True)[:, :longest]
    return row[:, None] * length + order, member.gather(1, order)


def take(x: Tensor, index: Tensor) -> Tensor:
    """(B,T,D) -> (N,T',D), float32, by the index that `documents` gave."""
    return x.detach().float().flatten(0, 1)[index]


def relative_residual(x: Tensor, real: Tensor) -> Tensor:
    """norm_F(X - 1 mean_t X) / norm_F(X): 1 where tokens differ, 0 where all are alike; the float32 floor is 2e-7.

    Source: Dong et al. 2021, section 2.2, with the Frobenius norm.
    """
    x = _zeroed(x, real)
    return _enough(_centred(x, real).flatten(1).norm(dim=1) / x.flatten(1).norm(dim=1), real)


def token_cosine(x: Tensor, real: Tensor) -> Tensor:
    """Mean over t != s of cos(X_t, X_s): 1 where all tokens point the same way. Source: Noci et al. 2022, section 3."""
    unit = F.normalize(_zeroed(x, real).double(), dim=-1)
    n = real.sum(1)
    # |sum of unit vectors|^2 holds every pair twice, and each vector with itself
    itself = unit.square().sum((1, 2))
    return _enough(((unit.sum(1).square().sum(1) - itself) / (n * (n - 1))).float(), real)


def dirichlet_energy(x: Tensor, real: Tensor) -> Tensor:
    """sum_t norm(X_t - mean X)^2: falls to 0 as tokens become alike; it depends on the scale of X and the length.

    Source: the energy of a complete graph, as in Cai and Wang 2020, up to a factor.
    """
    return _enough(_centred(_zeroed(x, real), real).square().sum((1, 2)), real)


def effective_rank(x: Tensor, real: Tensor) -> Tensor:
    """exp(entropy of the singular values of X divided by their sum): 1 where X has rank 1, at most min(T,D).

    X is not centred, so that tokens that are all alike have rank 1. Source: Roy and Vetterli 2007, definition 1.
    """
    x = _zeroed(x, real).double()
    gram = x @ x.mT if x.size(1) <= x.size(2) else x.mT @ x
    if not bool(gram.isfinite().all()):
        return torch.full((len(x),), torch.nan, device=x.device)
    squares = torch.linalg.eigvalsh(gram).clamp_min(0)
    # the eigenvalues have an error of about 1e-16 of the largest, and their roots would count it
    squares = squares.masked_fill(squares < 1e-13 * squares.amax(-1, keepdim=True), 0.0)
    values = squares.sqrt()
    share = values / values.sum(-1, keepdim=True)
    return _enough(torch.special.entr(share).sum(-1).exp().float(), real)


def _zeroed(x: Tensor, real: Tensor) -> Tensor:
    return torch.where(real[..., None], x, 0.0)


def _centred(x: Tensor, real: Tensor) -> Tensor:
    mean = x.sum(1, keepdim=True) / real.sum(1).clamp_min(1)[:, None, None]
    return _zeroed(x - mean, real)


def _enough(value: Tensor, real: Tensor) -> Tensor:
    return value.masked_fill(real.sum(1) < LEAST, torch.nan)
