"""Rotary positions."""

from __future__ import annotations

import torch
from torch import Tensor

from minitf.blocks.checks import check_above, is_number
from minitf.blocks.position import Position
from minitf.blocks.position.scaling import Scaling
from minitf.errors import ConfigError
from minitf.positions import offset


class Rope(Position):
    """Rotate pairs of features of q and k by an angle that grows with the place: scores see differences only.

    Of the r rotated features, the first ones of a head, feature i is paired with feature i + r/2.
    Source: Su et al. 2021 (RoFormer), equation 34; rotating some features only: Black et al. 2022 (GPT-NeoX-20B).

    Args:
        base: the longest wavelength is 2 pi base.
        rotated: share of the features that is rotated; 1.0 means all.
        scaling: how angles are slowed down for texts longer than those of training.
    """

    uses = frozenset({"rotate"})

    def __init__(
        self,
        *,
        d_model: int,
        d_head: int,
        n_heads: int,
        max_len: int,
        causal: bool,
        scaling: Scaling,
        base: float = 10000.0,
        rotated: float = 1.0,
    ) -> None:
        super().__init__(d_model=d_model, d_head=d_head, n_heads=n_heads, max_len=max_len, causal=causal)
        check_above(1, "10000 is usual", **{"rope base": base})
        self.base = float(base)  # torch takes no whole number beyond 64 bits
        self.n_rotated = rotated_width(d_head, rotated)
        self.scaling = scaling

    def turns(self, pos: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Per rotated feature its cosine, and the sine by which the other of its pair comes in: (B or 1, 1, T, r)."""
        per_place = self.scaling(frequencies(self.n_rotated, self.base, pos.device), self.base)
        angle = offset(pos)[:, None, :, None].float() * per_place
        cos, sin = angle.cos(), angle.sin()
        if self.scaling.magnitude != 1.0:
            cos, sin = cos * self.scaling.magnitude, sin * self.scaling.magnitude
        # only cos and sin may be rounded to a narrow dtype, never the angle
        return torch.cat([cos, cos], -1).to(dtype), torch.cat([-sin, sin], -1).to(dtype)

    def rotate(self, x: Tensor, pos: Tensor, table: tuple[Tensor, Tensor] | None = None) -> Tensor:
        cos, sin = self.turns(pos, x.dtype) if table is None else table
        turned = x if self.n_rotated == x.size(-1) else x[..., : self.n_rotated]
        other = turned.roll(self.n_rotated // 2, -1)  # of each pair (i, i + r/2)
        turned = torch.addcmul(turned * cos, other, sin)
        return turned if self.n_rotated == x.size(-1) else torch.cat([turned, x[..., self.n_rotated :]], -1)


def rotated_width(d_head: int, rotated: float) -> int:
    """How many features of a head are rotated.

    Raises:
        ConfigError: a share that is none, or pairs that do not come out even.
    """
    if not (is_number(rotated) and 0 < rotated <= 1):
        raise ConfigError(f"rope rotated is a share above 0, up to 1 for all features; got {rotated!r}")
    width = int(d_head * rotated)
    if rotated == 1 and width % 2:
        raise ConfigError(
            f"position=rope needs an even d_head, got {d_head}: change n_heads, d_head (d_rotary of attention=mla) or "
            "position"
        )
    if width % 2 or width == 0 < d_head:
        raise ConfigError(
            f"position=rope with rotated={rotated:g} turns {width} of d_head={d_head} features, which must be an even "
            "number of at least 2: change rotated, n_heads or d_head"
        )
    return width


def frequencies(d: int, base: float, device: torch.device) -> Tensor:
    """base ** (-2i/d) for i = 0, 1, ... ceil(d/2)-1, in float32."""
    return base ** (-torch.arange(0, d, 2, device=device, dtype=torch.float32) / d)
