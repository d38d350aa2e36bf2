"""Does the key that fits best depend on the query? Scores with random parts."""

from __future__ import annotations

import torch

from minitf.config import build, compose


@torch.no_grad()
def best_keys(
    seed: int, score: str, n_queries: int = 8, n_keys: int = 8, d_head: int = 16, n_parts: int = 200
) -> dict[str, float]:
    """Which key each query prefers, of queries and keys from N(0, 1).

    Args:
        seed: of vectors and parameters.
        score: name of an option of model/attention/score.
        n_queries, n_keys: of a row.
        d_head: width of both.
        n_parts: heads, each with parameters and vectors of its own.

    Returns:
        "same", mean share of the queries of a head that have the key best which most of them have best; and "kinds",
        mean number of different best keys of a head.
    """
    node = compose("train", ["model=gpt_tiny", f"model/attention/score={score}"]).model.attention.score
    torch.manual_seed(seed)
    q, k = torch.randn(1, n_parts, n_queries, d_head), torch.randn(1, n_parts, n_keys, d_head)
    # in float64: LeakyReLU keeps the order of sums, but rounding could make two of them equal
    best = build(node)(d_head=d_head, n_heads=n_parts).double()(q.double(), k.double()).argmax(-1)[0]
    counts = (best[..., None] == torch.arange(n_keys)).sum(1)  # (heads, keys)
    return {
        "same": float(counts.amax(1).double().mean() / n_queries),
        "kinds": float((counts > 0).sum(1).double().mean()),
    }
