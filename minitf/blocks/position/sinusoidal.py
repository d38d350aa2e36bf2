"""Sines and cosines of the place."""

from __future__ import annotations

import torch
from torch import Tensor

from minitf.blocks.checks import check_above
from minitf.blocks.position import Position
from minitf.blocks.position.rope import frequencies
from minitf.positions import offset


class Sinusoidal(Position):
    """Fixed sines and cosines, added to the embedding; any length, any width.

    Their mean square is 1/2. Source: Vaswani et al. 2017, section 3.5. The factor sqrt(d_model) there is a model's
    `embedding_power`.

    Args:
        factor: of all of them; 1.414 makes the mean square 1, that of a table of N(0, 1).
    """

    uses = frozenset({"embed"})

    def __init__(
        self, *, d_model: int, d_head: int, n_heads: int, max_len: int, causal: bool, factor: float = 1.0
    ) -> None:
        super().__init__(d_model=d_model, d_head=d_head, n_heads=n_heads, max_len=max_len, causal=causal)
        check_above(0, "model/position=none is for 0", **{"sinusoidal factor": factor})
        self.factor = factor

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        return x + (self.factor * sinusoids(offset(pos), x.size(-1))).to(x.dtype)


def sinusoids(place: Tensor, d: int) -> Tensor:
    """(…) places -> (…, d) in float32: sin and cos of one frequency side by side."""
    angle = place[..., None].float() * frequencies(d, 10000.0, place.device)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)[..., :d]
