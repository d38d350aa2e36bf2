"""Masks: which key a query may read, decided elementwise from the two positions. True means "may be read"."""

from __future__ import annotations

import torch
from torch import Tensor

from minitf.positions import offset, segment

_PROBE = 64


class Mask:
    """One visibility rule; rules combine with `&` and `|`.

    Attributes:
        plain_causal: with plain positions the rule is "this key or an earlier one".
        plain_full: with plain positions every key may be read.
    """

    plain_causal: bool = False
    plain_full: bool = False

    def rule(self, q_off: Tensor, k_off: Tensor) -> Tensor | bool:
        """What this mask adds, from places inside the document; broadcastable int64 in, bool out."""
        raise NotImplementedError

    def visible(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """Whether each query may read each key.

        Every mask also asks that the key is a token and belongs to the query's document.

        Args:
            q_pos, k_pos: int64 positions, broadcastable, for example (B,1,T,1) and (B,1,1,S).

        Returns:
            bool, the broadcast shape.
        """
        real = (k_pos >= 0) & (segment(q_pos) == segment(k_pos))
        return real & self.rule(offset(q_pos), offset(k_pos))

    @property
    def sees_future(self) -> bool:
        """True if some token reads a later one, tried on the first places of a document."""
        place = torch.arange(_PROBE)
        return bool(self.visible(place[:, None], place[None, :]).triu(1).any())

    def __and__(self, other: Mask) -> Mask:
        return _Both(self, other)

    def __or__(self, other: Mask) -> Mask:
        return _Either(self, other)


class _Both(Mask):
    def __init__(self, a: Mask, b: Mask) -> None:
        self.a, self.b = a, b
        self.plain_full = a.plain_full and b.plain_full
        causal = (a.plain_causal or a.plain_full) and (b.plain_causal or b.plain_full)
        self.plain_causal = causal and not self.plain_full

    def rule(self, q_off: Tensor, k_off: Tensor) -> Tensor | bool:
        return self.a.rule(q_off, k_off) & self.b.rule(q_off, k_off)


class _Either(Mask):
    def __init__(self, a: Mask, b: Mask) -> None:
        self.a, self.b = a, b
        self.plain_full = a.plain_full or b.plain_full
        self.plain_causal = a.plain_causal and b.plain_causal

    def rule(self, q_off: Tensor, k_off: Tensor) -> Tensor | bool:
        return self.a.rule(q_off, k_off) | self.b.rule(q_off, k_off)
