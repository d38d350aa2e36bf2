"""Rotary positions."""

from __future__ import annotations

import torch
from torch import Tensor

from minitf.blocks.checks import check_above
from minitf.blocks.position import Position
from minitf.errors import ConfigError
from minitf.positions import offset


class Rope(Position):
    """Rotate pairs of features of q and k by an angle that grows with the place: scores see differences only.

    Feature i is paired with feature i + d/2. Source: Su et al. 2021 (RoFormer), equation 34.

    Args:
        base: the longest wavelength is 2 pi base.
    """

    uses = frozenset({"rotate"})

    def __init__(
        self, *, d_model: int, d_head: int, n_heads: int, max_len: int, causal: bool, base: float = 10000.0
    ) -> None:
        super().__init__(d_model=d_model, d_head=d_head, n_heads=n_heads, max_len=max_len, causal=causal)
        if d_head % 2:
            raise ConfigError(f"position=rope needs an even d_head, got {d_head}: change n_heads, d_head or position")
        check_above(1, "10000 is usual", **{"rope base": base})
        self.base = float(base)  # torch takes no whole number beyond 64 bits

    def rotate(self, x: Tensor, pos: Tensor) -> Tensor:
        angle = offset(pos)[:, None, :, None].float() * frequencies(x.size(-1), self.base, x.device)
        # only cos and sin may be rounded to a narrow dtype, never the angle
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def frequencies(d: int, base: float, device: torch.device) -> Tensor:
    """base ** (-2i/d) for i = 0, 1, ... ceil(d/2)-1, in float32."""
    return base ** (-torch.arange(0, d, 2, device=device, dtype=torch.float32) / d)
