"""Do the heads of a layer differ? Patterns and outputs compared in pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from minitf.analysis.heads.average import Average, over_rows
from minitf.analysis.heads.patterns import distributions


def js_divergence(weights: Tensor, rows: Tensor) -> Average:
    """mean_i [H((p+q)/2) - (H(p) + H(q))/2] / ln 2 of each pair of heads: (H,H), 0 identical .. 1 disjoint.

    Rows are divided by their sums. The mean over pairs below 0.02 is a collapse.

    Args:
        weights: (B,H,T,S).
        rows: bool (B,T), which queries count.

    Source: Clark et al. 2019, section 6 (distances between heads).
    """
    p = distributions(weights)
    own = torch.special.entr(p).sum(-1)  # (B,H,T)
    n_heads = weights.size(1)
    n = rows.sum().double()
    total = torch.zeros(n_heads, n_heads, dtype=torch.float64, device=weights.device)
    for g in range(n_heads - 1):
        both = torch.special.entr((p[:, g : g + 1] + p[:, g + 1 :]) / 2).sum(-1)
        js = (both - (own[:, g : g + 1] + own[:, g + 1 :]) / 2) / math.log(2)
        total[g, g + 1 :] = total[g + 1 :, g] = over_rows(js, rows).total
    return Average(total.clamp_min(0), n)


def pattern_gram(weights: Tensor, rows: Tensor) -> Tensor:
    """Products of the flattened patterns, float64 (H,H); those of pieces add up. For `effective_heads`."""
    flat = weights.double().masked_fill(~rows[:, None, :, None], 0.0).transpose(0, 1).flatten(1)
    return flat @ flat.T


def effective_heads(gram: Tensor) -> Tensor:
    """exp of the entropy of the eigenvalues of G / H, G the cosines of the patterns: 1 all alike .. H orthogonal.

    Args:
        gram: (H,H), from `pattern_gram`. A head without any weight counts as unlike the others.

    Returns:
        float64 ().
    """
    length = gram.diagonal().sqrt()
    length = length.where(length > 0, 1.0)
    cosines = gram / length[:, None] / length
    cosines.diagonal().fill_(1.0)
    share = torch.linalg.eigvalsh(cosines / len(gram)).clamp_min(0)
    return torch.special.entr(share / share.sum()).sum().exp()


def mean_of_pairs(values: Tensor) -> Tensor:
    """The mean of a symmetric (H,H) over pairs of different heads: (); NaN for one head."""
    pairs = torch.triu_indices(len(values), len(values), 1)
    return values[pairs[0], pairs[1]].mean()


@dataclass(frozen=True)
class Moments:
    """Sums for `cka`; two of them add up to those of both pieces.

    Args:
        n: float64 (), tokens.
        total: float64 (H,d), sum over tokens.
        products: float64 (H,d,H,d), sum over tokens of products.
    """

    n: Tensor
    total: Tensor
    products: Tensor

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.n + other.n, self.total + other.total, self.products + other.products)


def moments(outputs: Tensor, rows: Tensor) -> Moments:
    """Of what heads read.

    Args:
        outputs: (B,H,T,d).
        rows: bool (B,T), which queries count.
    """
    of_tokens = outputs.transpose(1, 2)[rows].double()  # (N,H,d)
    flat = of_tokens.flatten(1)
    shape = of_tokens.shape[1:]
    return Moments(rows.sum().double(), of_tokens.sum(0), (flat.T @ flat).view(*shape, *shape))


def cka(found: Moments) -> Tensor:
    """norm(Z_g' Z_h)^2 / (norm(Z_g' Z_g) norm(Z_h' Z_h)), Z centred over tokens: (H,H), 0 .. 1 the same output.

    It does not change when a Z is turned, mirrored or scaled. With few more tokens than d it is biased upwards.

    Args:
        found: from `moments`, of all pieces.

    Returns:
        float64 (H,H); NaN for a head whose output never changes.

    Source: Kornblith et al. 2019, linear CKA.
    """
    mean = found.total / found.n
    centred = found.products - found.n * torch.einsum("gd,he->gdhe", mean, mean)
    square = centred.square().sum((1, 3))  # (H,H)
    # what rounding leaves of a constant output is no variation
    floor = (found.products.diagonal(dim1=0, dim2=2).square().sum((0, 1))) * 1e-20
    own = square.diagonal()
    own = own.where(own > floor, torch.nan).sqrt()
    return square / own[:, None] / own
