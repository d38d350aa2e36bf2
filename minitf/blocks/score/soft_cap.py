"""Scores that cannot grow without bound."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from minitf.blocks.checks import check_above
from minitf.blocks.score import Score


class SoftCap(Score):
    """cap * tanh(another score / cap), between -cap and cap. Source: Gemma Team 2024 (Gemma 2), section 2.

    What the inner score does by row comes after the cap.

    Args:
        inner: factory of the other score.
        cap: the bound; Gemma 2 takes 50.
    """

    def __init__(self, *, d_head: int, n_heads: int, inner: Callable[..., Score], cap: float) -> None:
        super().__init__(d_head=d_head, n_heads=n_heads)
        check_above(0, "50 is usual", **{"score cap": cap})
        self.inner = inner(d_head=d_head, n_heads=n_heads)
        self.cap = cap

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return self.cap * (self.inner(q, k) / self.cap).tanh()

    def by_row(self, scores: Tensor, n_visible: Tensor) -> Tensor:
        return self.inner.by_row(scores, n_visible)
