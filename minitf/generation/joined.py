"""Parts of a model in another form: the same numbers in fewer, better laid out matrices and fewer operations."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from minitf.blocks.ffn import GatedFeedForward
from minitf.blocks.norm.rms import RMSNorm
from minitf.blocks.projection import split_heads
from minitf.blocks.projection.free import Free


def by_input(weight: Tensor) -> Tensor:
    """The same matrix (out, in), stored with its inputs as rows."""
    return weight.t().contiguous().t()


def can_join(projection: nn.Module) -> bool:
    """Whether queries, keys and values come from a matrix each."""
    own = type(projection)
    return isinstance(projection, Free) and (own.q, own.k, own.v, own.qkv) == (Free.q, Free.k, Free.v, Free.qkv)


def joined(linears: list[nn.Linear]) -> nn.Linear:
    """One matrix that makes what several make of the same vector."""
    first = linears[0]
    n_out = sum(linear.out_features for linear in linears)
    made = nn.Linear(first.in_features, n_out, bias=first.bias is not None, device=first.weight.device)
    made.weight = nn.Parameter(torch.cat([linear.weight for linear in linears]), requires_grad=False)
    if first.bias is not None:
        made.bias = nn.Parameter(torch.cat([linear.bias for linear in linears]), requires_grad=False)
    return made


class OneRowLinear(nn.Linear):
    """A product that a compiler turns into one pass over the matrix when there is a single row: as fast as memory is,
    which no library function for it was (`scripts/benchmark.py bench=decode bench.compile=true`).

    Args:
        linear: what to take the matrix and the bias from.
    """

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x: Tensor, pos: Tensor | None = None) -> Tensor:
        """(..., n_in) -> (..., n_out); `pos` is for heads that are given it."""
        if x.numel() != self.in_features or not torch.compiler.is_compiling():
            return super().forward(x)
        y = (self.weight * x.reshape(-1)).sum(-1)
        return (y if self.bias is None else y + self.bias).reshape(*x.shape[:-1], -1)


class JoinedProjection(nn.Module):
    """A projection whose queries, keys and values come out of one product.

    Args:
        projection: one for which `can_join` is true; the rest of it is used as it is.
    """

    def __init__(self, projection: Free) -> None:
        super().__init__()
        self.w_qkv = joined([projection.w_q, projection.w_k, projection.w_v])
        self.widths = [projection.w_q.out_features, projection.w_k.out_features, projection.w_v.out_features]
        self.heads = [projection.n_heads, projection.n_kv_heads, projection.n_kv_heads]
        self.reads_previous = projection.reads_previous
        del projection.w_q, projection.w_k, projection.w_v
        self.rest = projection
        self.mix_keys, self.out = projection.mix_keys, projection.out

    def qkv(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As `Projection.qkv`."""
        qkv, start, found = self.w_qkv(x), 0, []
        for width, n_heads in zip(self.widths, self.heads, strict=True):
            found.append(split_heads(qkv.narrow(-1, start, width), n_heads))
            start += width
        return tuple(found)


class JoinedFeedForward(nn.Module):
    """A gated network whose two inner matrices are one.

    Args:
        ffn: the network.
    """

    def __init__(self, ffn: GatedFeedForward) -> None:
        super().__init__()
        self.w_both = joined([ffn.w_gate, ffn.w_in])
        self.w_out, self.gate = ffn.w_out, ffn.gate

    def forward(self, x: Tensor) -> Tensor:
        """(B,T,D) -> (B,T,D)."""
        gate, inner = self.w_both(x).chunk(2, -1)
        return self.w_out(self.gate(gate) * inner)


class ShortRMSNorm(nn.Module):
    """x w sqrt(D) / sqrt(|x|^2 + D eps): the same in four operations instead of the ten that torch has for a CPU.

    Args:
        norm: the norm.
    """

    def __init__(self, norm: RMSNorm) -> None:
        super().__init__()
        width = norm.normalized_shape[0]
        self.weight = nn.Parameter(norm.weight * width**0.5, requires_grad=False)
        self.register_buffer("least", norm.weight.new_tensor((width * norm.eps) ** 0.5))

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D)."""
        return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).hypot(self.least) * self.weight
