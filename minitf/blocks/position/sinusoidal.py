"""Sines and cosines of the place."""

from __future__ import annotations

import torch
from torch import Tensor

from minitf.blocks.position import Position
from minitf.blocks.position.rope import frequencies
from minitf.positions import offset


class Sinusoidal(Position):
    """Fixed sines and cosines, added to the embedding; any length, any width.

    Source: Vaswani et al. 2017, section 3.5. The factor sqrt(d_model) there is a model's `embedding_power`.
    """

    uses = frozenset({"embed"})

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        return x + sinusoids(offset(pos), x.size(-1)).to(x.dtype)


def sinusoids(place: Tensor, d: int) -> Tensor:
    """(…) places -> (…, d) in float32: sin and cos of one frequency side by side."""
    angle = place[..., None].float() * frequencies(d, 10000.0, place.device)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)[..., :d]
