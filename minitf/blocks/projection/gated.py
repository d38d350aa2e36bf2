"""A gate behind each head."""

from __future__ import annotations

from torch import Tensor

from minitf.blocks.projection import split_heads
from minitf.blocks.projection.free import Free


class Gated(Free):
    """What a head has read is multiplied by sigmoid(x W_gate), per head and feature. Source: Qiu et al. 2025.

    A token that needs nothing can close its gate, so no weight has to go to a sink.
    """

    def shapes(self) -> dict[str, tuple[int, int]]:
        return super().shapes() | {"w_gate": (self.d_model, self.n_heads * self.d_value)}

    def out(self, heads: Tensor, x: Tensor) -> Tensor:
        gate = split_heads(self.w_gate(x), self.n_heads).sigmoid()
        return super().out(heads * gate, x)

    def into_heads(self) -> dict[str, Tensor]:
        return super().into_heads() | {"w_gate": self.w_gate.weight.unflatten(0, (self.n_heads, -1))}
