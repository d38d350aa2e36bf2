"""What a part costs, by formula: parameters, and floating point operations (FLOPs) of a forward pass.

Only matrix products count, as everywhere: (m,k) times (k,n) takes m*n*k multiplications and as many additions. So a
matrix costs 2 * rows * parameters; what attention adds to its matrices are q.k and weights.v, which grow with the
square of the length.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Cost:
    """Parameters, and FLOPs of a forward pass."""

    params: int = 0
    flops: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.params + other.params, self.flops + other.flops)


@dataclass(frozen=True)
class Sizes:
    """B rows of T queries that read S keys, and the widths of one attention block; letters as in demo=shapes."""

    B: int
    T: int
    S: int
    D: int
    H: int
    G: int
    d: int
    d_v: int


def matrix(rows: int, d_in: int, d_out: int, bias: bool = False) -> Cost:
    """A matrix that every row is multiplied by."""
    return Cost(params=d_in * d_out + (d_out if bias else 0), flops=2 * rows * d_in * d_out)


def projections(n: Sizes, bias: bool = False) -> Cost:
    """w_q, w_k, w_v and w_o."""
    queries, keys = n.B * n.T, n.B * n.S
    return (
        matrix(queries, n.D, n.H * n.d, bias)
        + matrix(keys, n.D, n.G * n.d, bias)
        + matrix(keys, n.D, n.G * n.d_v, bias)
        + matrix(queries, n.H * n.d_v, n.D, bias)
    )


def products(n: Sizes) -> Cost:
    """q.k for every query and key, and the weighted sum of the values; a mask saves nothing by definition."""
    return Cost(flops=2 * n.B * n.H * n.T * n.S * n.d + 2 * n.B * n.H * n.T * n.S * n.d_v)


def feed_forward(rows: int, d_model: int, d_ff: int, gated: bool, bias: bool = False) -> Cost:
    """w_in and w_out, and w_gate where there is one."""
    inside = matrix(rows, d_model, d_ff, bias)
    return inside + (inside if gated else Cost()) + matrix(rows, d_ff, d_model, bias)


def scores_bytes(n: Sizes, width: int = 4) -> int:
    """Memory of the scores q.k of one attention block, at `width` bytes a number."""
    return n.B * n.H * n.T * n.S * width


def cache_bytes(n: Sizes, width: int = 4) -> int:
    """Memory that one token's key and value take in one block's cache."""
    return n.G * (n.d + n.d_v) * width


def of_attention(block: nn.Module, B: int, T: int, S: int) -> Cost | None:
    """The cost of an attention block; None: there is no formula for its parts."""
    if getattr(block, "absent", False):
        return Cost()
    n = sizes(block, B, T, S)
    if n is None or not {"w_q", "w_k", "w_v", "w_o"} <= dict(block.projection.named_children()).keys():
        return None
    p = block.projection
    cost = projections(n, bias=p.w_q.bias is not None) + products(n)
    if hasattr(p, "w_gate"):
        cost += matrix(B * T, n.D, n.H * n.d_v, bias=p.w_gate.bias is not None)
    cost += of_norm(block.q_norm, n.d) + of_norm(block.k_norm, n.d)
    return if_counted(cost, block)


def sizes(block: nn.Module, B: int, T: int, S: int) -> Sizes | None:
    """The sizes of an attention block that reads S keys for T queries; None where it has no such sizes."""
    p = getattr(block, "projection", None)
    if p is None or not hasattr(block, "score"):
        return None
    return Sizes(B=B, T=T, S=S, D=p.d_model, H=p.n_heads, G=p.n_kv_heads, d=p.d_head, d_v=p.d_value)


def of_ffn(ffn: nn.Module, rows: int) -> Cost | None:
    """The cost of a feed-forward network; None: there is no formula for it."""
    if hasattr(ffn, "experts"):  # each row goes through the router and top_k of the experts
        one, all_rows = of_ffn(ffn.experts[0], rows), ffn.router.in_features * ffn.router.out_features
        if one is None:
            return None
        total = Cost(one.params * len(ffn.experts), one.flops * ffn.top_k) + Cost(all_rows, 2 * rows * all_rows)
        return if_counted(total, ffn)
    if not hasattr(ffn, "w_in"):
        return if_counted(Cost(), ffn)
    d_model, d_ff = ffn.w_in.in_features, ffn.w_in.out_features
    gated, bias = hasattr(ffn, "w_gate"), ffn.w_in.bias is not None
    return if_counted(feed_forward(rows, d_model, d_ff, gated, bias), ffn)


def of_norm(norm: nn.Module | None, width: int) -> Cost:
    """A gain per feature, of LayerNorm also a shift; no matrix product."""
    if isinstance(norm, nn.LayerNorm):
        return Cost(params=2 * width)
    return Cost(params=width if isinstance(norm, nn.RMSNorm) else 0)


def if_counted(cost: Cost, part: nn.Module) -> Cost | None:
    """None where a part has other parameters than the formula knows: then its FLOPs are others, too."""
    return cost if cost.params == sum(p.numel() for p in part.parameters()) else None
