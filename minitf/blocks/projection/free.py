"""The projection of the Transformer."""

from __future__ import annotations

from torch import Tensor, nn

from minitf.blocks.projection import Projection, merge_heads, split_heads


class Free(Projection):
    """Four free matrices w_q, w_k, w_v, w_o. Source: Vaswani et al. 2017, section 3.2.2.

    Args:
        bias: add a bias to all matrices.

    Subclasses say by `shapes` which matrices they have, and change the steps that use them.
    """

    def __init__(
        self, *, d_model: int, n_heads: int, n_kv_heads: int, d_head: int, d_value: int, bias: bool = False
    ) -> None:
        super().__init__(d_model=d_model, n_heads=n_heads, n_kv_heads=n_kv_heads, d_head=d_head, d_value=d_value)
        for name, (n_in, n_out) in self.shapes().items():
            self.add_module(name, nn.Linear(n_in, n_out, bias=bias))

    def shapes(self) -> dict[str, tuple[int, int]]:
        """Name -> (inputs, outputs) of every matrix."""
        return {
            "w_q": (self.d_model, self.n_heads * self.d_head),
            "w_k": (self.d_model, self.n_kv_heads * self.d_head),
            "w_v": (self.d_model, self.n_kv_heads * self.d_value),
            "w_o": (self.n_heads * self.d_value, self.d_model),
        }

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

    def by_head(self) -> dict[str, Tensor]:
        return self.into_heads() | {"w_o": self.w_o.weight.unflatten(1, (self.n_heads, -1)).transpose(0, 1)}

    def into_heads(self) -> dict[str, Tensor]:
        """The part of `by_head` whose outputs belong to heads."""
        n_heads = {"w_q": self.n_heads, "w_k": self.n_kv_heads, "w_v": self.n_kv_heads}
        there = {name: n for name, n in n_heads.items() if name in self.shapes()}
        return {name: getattr(self, name).weight.unflatten(0, (n, -1)) for name, n in there.items()}
