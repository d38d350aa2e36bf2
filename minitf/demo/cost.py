"""What a part costs, by formula: parameters, and floating point operations (FLOPs) of a forward and a backward pass.

Only matrix products count, as everywhere: (m,k) times (k,n) takes m*n*k multiplications and as many additions. So a
matrix costs 2 * rows * parameters; what attention adds to its matrices are q.k and weights.v, which grow with the
square of the length. The backward pass has two products for each of the forward pass, one for each factor's gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Cost:
    """Parameters, and FLOPs.

    Attributes:
        params: number of parameters.
        flops: of a forward pass.
        spared: what the backward pass takes less than twice the forward pass, where nothing needs a gradient.
    """

    params: int = 0
    flops: int = 0
    spared: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.params + other.params, self.flops + other.flops, self.spared + other.spared)

    def __mul__(self, times: int) -> Cost:
        """The FLOPs of so many passes; the parameters are the same ones."""
        return Cost(self.params, self.flops * times, self.spared * times)

    @property
    def training(self) -> int:
        """FLOPs of a forward and a backward pass."""
        return 3 * self.flops - self.spared


@dataclass(frozen=True)
class Sizes:
    """B rows of T queries that read S keys, and the widths of one attention block; letters as in demo=shapes.

    Attributes:
        kept: numbers that a cache keeps of a token; None: its keys and values.
    """

    B: int
    T: int
    S: int
    D: int
    H: int
    G: int
    d: int
    d_v: int
    kept: int | None = None


def matrix(rows: int, d_in: int, d_out: int, bias: bool = False) -> Cost:
    """A matrix that every row is multiplied by."""
    return Cost(params=d_in * d_out + (d_out if bias else 0), flops=2 * rows * d_in * d_out)


def feed_forward(rows: int, d_model: int, d_ff: int, gated: bool, bias: bool = False) -> Cost:
    """w_in and w_out, and w_gate where there is one."""
    inside = matrix(rows, d_model, d_ff, bias)
    return inside + (inside if gated else Cost()) + matrix(rows, d_ff, d_model, bias)


def scores_bytes(n: Sizes, width: int = 4) -> int:
    """Memory of the scores q.k of one attention block, at `width` bytes a number."""
    return n.B * n.H * n.T * n.S * width


def cache_bytes(n: Sizes, width: int = 4) -> int:
    """Memory that one token takes in one block's cache."""
    return (n.G * (n.d + n.d_v) if n.kept is None else n.kept) * width


def of_ffn(ffn: nn.Module, rows: int) -> Cost | None:
    """The cost of a feed-forward network; None: there is no formula for it."""
    if hasattr(ffn, "experts"):  # each row goes through the router and top_k of the experts
        one, router = of_ffn(ffn.experts[0], rows * ffn.top_k), ffn.router
        if one is None:
            return None
        experts = Cost(one.params * len(ffn.experts), one.flops, one.spared)
        return if_counted(experts + matrix(rows, router.in_features, router.out_features), ffn)
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


def if_counted(cost: Cost | None, part: nn.Module) -> Cost | None:
    """None where a part has other parameters than the formula knows: then its FLOPs are others, too."""
    known = cost is not None and cost.params == sum(p.numel() for p in part.parameters())
    return cost if known else None
