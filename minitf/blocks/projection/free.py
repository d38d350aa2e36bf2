"""The projection of the Transformer."""

from __future__ import annotations

from torch import Tensor, nn

from minitf.blocks.projection import Projection, merge_heads, split_heads


class Free(Projection):
    """Four free matrices w_q, w_k, w_v, w_o. Source: Vaswani et al. 2017, section 3.2.2.

    Args:
        bias: add a bias to all four.
    """

    def __init__(
        self, *, d_model: int, n_heads: int, n_kv_heads: int, d_head: int, d_value: int, bias: bool = False
    ) -> None:
        super().__init__(d_model=d_model, n_heads=n_heads, n_kv_heads=n_kv_heads, d_head=d_head, d_value=d_value)
        self.w_q = nn.Linear(d_model, n_heads * d_head, bias=bias)
        self.w_k = nn.Linear(d_model, n_kv_heads * d_head, bias=bias)
        self.w_v = nn.Linear(d_model, n_kv_heads * d_value, bias=bias)
        self.w_o = nn.Linear(n_heads * d_value, d_model, bias=bias)

    @property
    def residual_output(self) -> nn.Linear:
        return self.w_o

    def q(self, x: Tensor) -> Tensor:
        return split_heads(self.w_q(x), self.n_heads)

    def k(self, source: Tensor) -> Tensor:
        return split_heads(self.w_k(source), self.n_kv_heads)

    def v(self, source: Tensor) -> Tensor:
        return split_heads(self.w_v(source), self.n_kv_heads)

    def out(self, heads: Tensor, x: Tensor) -> Tensor:
        return self.w_o(merge_heads(heads))
