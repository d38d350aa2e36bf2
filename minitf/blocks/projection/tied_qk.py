"""Keys that are made like queries."""

from __future__ import annotations

from torch import Tensor

from minitf.blocks.projection import check_same_heads
from minitf.blocks.projection.free import Free


class TiedQK(Free):
    """Q = K: one matrix w_q makes both. Source: Kitaev et al. 2020 (Reformer), section 2, shared-QK.

    Scores between two tokens are then the same in both directions, and tokens tend to read themselves. Kitaev et al.
    besides divide keys by their length and hide the token itself.
    """

    def check(self) -> None:
        check_same_heads(self)
        super().check()

    def shapes(self) -> dict[str, tuple[int, int]]:
        shapes = super().shapes()
        del shapes["w_k"]
        return shapes

    def k(self, source: Tensor) -> Tensor:
        return self.q(source)
