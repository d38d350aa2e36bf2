"""Projections: where q, k and v come from, and how heads are cut out of d_model."""

from __future__ import annotations

from torch import Tensor, nn


class Projection(nn.Module):
    """The interface of every projection; it owns the head layout (B,T,D) <-> (B,H,T,d).

    A block that writes into the residual stream names its last matrix `residual_output`, for the initialisation.
    """

    def __init__(self, *, d_model: int, n_heads: int, n_kv_heads: int, d_head: int) -> None:
        super().__init__()
        self.n_heads, self.n_kv_heads, self.d_head = n_heads, n_kv_heads, d_head

    def q(self, x: Tensor) -> Tensor:
        """(B,T,D) -> (B,H,T,d)."""
        raise NotImplementedError

    def k(self, source: Tensor) -> Tensor:
        """(B,S,D) -> (B,G,S,d)."""
        raise NotImplementedError

    def v(self, source: Tensor) -> Tensor:
        """(B,S,D) -> (B,G,S,d)."""
        raise NotImplementedError

    def out(self, heads: Tensor) -> Tensor:
        """(B,H,T,d) -> (B,T,D)."""
        raise NotImplementedError


class Free(Projection):
    """Four free matrices w_q, w_k, w_v, w_o. Source: Vaswani et al. 2017, section 3.2.2.

    Args:
        bias: add a bias to all four.
    """

    def __init__(self, *, d_model: int, n_heads: int, n_kv_heads: int, d_head: int, bias: bool = False) -> None:
        super().__init__(d_model=d_model, n_heads=n_heads, n_kv_heads=n_kv_heads, d_head=d_head)
        self.w_q = nn.Linear(d_model, n_heads * d_head, bias=bias)
        self.w_k = nn.Linear(d_model, n_kv_heads * d_head, bias=bias)
        self.w_v = nn.Linear(d_model, n_kv_heads * d_head, bias=bias)
        self.w_o = nn.Linear(n_heads * d_head, d_model, bias=bias)

    @property
    def residual_output(self) -> nn.Linear:
        return self.w_o

    def q(self, x: Tensor) -> Tensor:
        return split_heads(self.w_q(x), self.n_heads)

    def k(self, source: Tensor) -> Tensor:
        return split_heads(self.w_k(source), self.n_kv_heads)

    def v(self, source: Tensor) -> Tensor:
        return split_heads(self.w_v(source), self.n_kv_heads)

    def out(self, heads: Tensor) -> Tensor:
        return self.w_o(merge_heads(heads))


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """(B,T,H*d) -> (B,H,T,d): head h owns the features h*d to (h+1)*d."""
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def merge_heads(heads: Tensor) -> Tensor:
    """(B,H,T,d) -> (B,T,H*d), the inverse of `split_heads`."""
    return heads.transpose(1, 2).flatten(-2)
