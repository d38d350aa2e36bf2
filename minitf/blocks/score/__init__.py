"""Scores: how well a query fits a key."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn


class Score(nn.Module):
    """The interface of every score.

    Args:
        d_head: width d of queries and keys.
        n_heads: query heads H.

    Attributes:
        is_dot: the score can be written as a product of a changed query with a changed key, see `dot_form`;
            then the fast path may run.
        keeps_keys: that changed key is the key itself, whatever its width; then a matrix that makes keys can be
            multiplied with the queries instead (minitf/blocks/latent.py).
    """

    is_dot: ClassVar[bool] = False
    keeps_keys: ClassVar[bool] = False

    def __init__(self, *, d_head: int, n_heads: int) -> None:
        super().__init__()

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        """(B,H,T,d), (B,H,S,d) -> (B,H,T,S): the definition."""
        raise NotImplementedError

    def dot_form(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float]:
        """q' (B,H,T,d'), k' (B,G,S,d') and a scale with forward(q, k) = q'.k' * scale; where `is_dot`.

        Args:
            q: (B,H,T,d).
            k: (B,G,S,d), one K/V head for several query heads: what belongs to a query head must act on q.
        """
        raise NotImplementedError

    def by_row(self, scores: Tensor, n_visible: Tensor) -> Tensor:
        """Scores changed by the number of keys that each query may read; by default they stay as they are.

        Args:
            scores: (B,H,T,S).
            n_visible: int64 (B or 1, 1, T, 1).
        """
        return scores
