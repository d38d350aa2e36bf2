"""Heads that are averaged."""

from __future__ import annotations

from torch import Tensor

from minitf.blocks.projection.free import Free


class Mean(Free):
    """Heads are averaged, then multiplied by w_o. Source: Velickovic et al. 2018 (GAT), equation 6.

    All heads share w_o, which is n_heads times smaller than behind heads side by side.
    """

    def shapes(self) -> dict[str, tuple[int, int]]:
        return super().shapes() | {"w_o": (self.d_value, self.d_model)}

    def out(self, heads: Tensor, x: Tensor) -> Tensor:
        return self.w_o(heads.mean(1))

    def by_head(self) -> dict[str, Tensor]:
        return self.into_heads()
