"""What a row of scores becomes: how sharp it is, and what comes back through it, before any training."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from minitf.analysis.attention_rows import jacobian_norm, saturated
from minitf.blocks.score.log_length import LogLength
from minitf.blocks.score.scaled_dot import ScaledDot

BASE = 8  # keys at which log-length scaling leaves scores as they are


def at_start(seed: int, n_keys: int, d_head: int, scaled: bool, n_rows: int = 1000) -> dict[str, float]:
    """Rows of softmax of products of q, k ~ N(0, 1).

    Args:
        seed: of the numbers.
        n_keys: of a row.
        d_head: width of q and k.
        scaled: whether products are divided by sqrt(d_head).
        n_rows: queries, each with keys of its own.

    Returns:
        "std" of the scores, mean "max_weight", share "saturated" of rows, "jacobian_mean" and "jacobian_median" of the
        norm of the softmax's Jacobian, and "gradient_mean" and "gradient_median" of the norm of the gradient of q,
        where the gradient of each weight is N(0, 1).
    """
    draw = torch.Generator().manual_seed(seed)
    q = torch.randn(n_rows, d_head, generator=draw)
    k = torch.randn(n_rows, n_keys, d_head, generator=draw)
    upstream = torch.randn(n_rows, n_keys, generator=draw)
    factor = d_head**-0.5 if scaled else 1.0
    scores = factor * torch.einsum("rd,rnd->rn", q, k)
    p = scores.softmax(-1)
    jacobian = jacobian_norm(p)
    back = p * (upstream - (p * upstream).sum(-1, keepdim=True))  # (diag(p) - p p^T) times what comes from above
    gradient = factor * torch.einsum("rn,rnd->rd", back, k).norm(dim=-1)
    return {
        "std": float(scores.std()),
        "max_weight": float(p.amax(-1).mean()),
        "saturated": float(saturated(p).float().mean()),
        "jacobian_mean": float(jacobian.mean()),
        "jacobian_median": float(jacobian.median()),
        "gradient_mean": float(gradient.mean()),
        "gradient_median": float(gradient.median()),
    }


def dilution(seed: int, n_keys: int, by_length: bool = False, d_head: int = 64, n_rows: int = 200) -> dict[str, float]:
    """What a row of scaled scores of random q and k gives out, by the number of keys.

    Args:
        seed: of the numbers.
        n_keys: M.
        by_length: multiply scores by ln M / ln 8, as score=log_length does.
        d_head: width of q and k.
        n_rows: queries; keys and values are shared.

    Returns:
        mean "max_weight"; "output", the standard deviation of the weighted mean of values ~ N(0, 1); and "beyond", the
        most by which an output is above the largest or below the least value of its feature.
    """
    draw = torch.Generator().manual_seed(seed)
    q = torch.randn(1, 1, n_rows, d_head, generator=draw)
    k, v = torch.randn(2, 1, 1, n_keys, d_head, generator=draw)
    sizes = {"d_head": d_head, "n_heads": 1}
    score = LogLength(**sizes, inner=ScaledDot, base=BASE) if by_length else ScaledDot(**sizes)
    weights = score.by_row(score(q, k), torch.tensor(n_keys)).softmax(-1)
    out = weights @ v
    outside = torch.maximum(out - v.amax(-2, keepdim=True), v.amin(-2, keepdim=True) - out).clamp(min=0)
    return {
        "max_weight": float(weights.amax(-1).mean()),
        "output": float(out.std()),
        "beyond": float(outside.max()),
    }


def lookup(
    seed: int, temperature: float, cosine: bool = False, present: bool = True, d_head: int = 8, n_others: int = 4
) -> dict[str, float]:
    """A query that is also a key, beside a key two to four times as long that points nearly the same way, and others.

    The angle to the longer key is between 17 and 34 degrees, so that its product with the query is the larger one.

    Args:
        seed: of the keys.
        temperature: that scores are divided by, above 0.
        cosine: divide products by both lengths.
        present: whether the key that equals the query is there; else one at a right angle to it stands in its place.
        d_head: width.
        n_others: random keys of length 1 at a right angle to the query or further from it.

    Returns:
        "equal", the weight of the key that equals the query, 0 where there is none; "longer", that of the longer one;
        "sum" of the row.
    """
    draw = torch.Generator().manual_seed(seed)
    query, side = torch.linalg.qr(torch.randn(d_head, 2, generator=draw)).Q.T
    length, angle = (low + (high - low) * torch.rand((), generator=draw) for low, high in ((2.0, 4.0), (0.3, 0.6)))
    others = F.normalize(torch.randn(n_others, d_head, generator=draw), dim=-1)
    others = others * torch.where(others @ query > 0, -1, 1)[:, None]
    longer = length * (angle.cos() * query + angle.sin() * side)
    keys = torch.cat([torch.stack([query if present else side, longer]), others])
    scores = keys @ query
    if cosine:
        scores = scores / keys.norm(dim=-1) / query.norm()
    weights = (scores / temperature).softmax(-1)
    return {
        "equal": float(weights[0]) if present else 0.0,
        "longer": float(weights[1]),
        "sum": float(weights.sum()),
    }
