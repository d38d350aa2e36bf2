"""Values that are the keys."""

from __future__ import annotations

from torch import Tensor

from minitf.blocks.projection import check_same_width
from minitf.blocks.projection.free import Free


class TiedKV(Free):
    """K = V: one matrix w_k makes both. Source: Bahdanau et al. 2015, section 3.1, whose annotations h_j are both.

    A value is what w_k makes, before a query-key norm and before rotation.
    """

    def check(self) -> None:
        check_same_width(self)
        super().check()

    def shapes(self) -> dict[str, tuple[int, int]]:
        shapes = super().shapes()
        del shapes["w_v"]
        return shapes

    def v(self, source: Tensor) -> Tensor:
        return self.k(source)

    def kv(self, source: Tensor) -> tuple[Tensor, Tensor]:
        k = self.k(source)
        return k, k
