"""Position schemes: how a model learns where a token stands.

A scheme works through any of three hooks: added to the embedding, rotating queries and keys, or biasing the scores.
`uses` names the hooks that a scheme needs; attention and model compare it with what they accept.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from minitf.blocks.checks import check_above, check_memory
from minitf.errors import ConfigError
from minitf.positions import offset


class Position(nn.Module):
    """The interface, and the scheme that adds nothing.

    Args:
        d_model: width D of the embedding.
        d_head: width that `rotate` sees (attention's d_rotary).
        n_heads: query heads H.
        max_len: longest row of the data; binds learned tables only.
        causal: whether a query reads only what stands before it.

    Attributes:
        limit: number of places the scheme can tell apart, or None if there is no end.
    """

    uses: ClassVar[frozenset[str]] = frozenset()
    limit: int | None = None

    def __init__(self, *, d_model: int, d_head: int, n_heads: int, max_len: int, causal: bool) -> None:
        super().__init__()

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        """(B,T,D) and positions (B or 1, T) -> (B,T,D)."""
        return x

    def rotate(self, x: Tensor, pos: Tensor) -> Tensor:
        """(B,H,T,d) and positions (B or 1, T) -> (B,H,T,d)."""
        return x

    def bias(self, q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
        """(B or 1, T), (B or 1, S) -> (B or 1, H, T, S), added to the scores; None adds nothing."""
        return None


class NoPosition(Position):
    """No position at all: only the mask tells order. Source: Kazemnejad et al. 2023 (NoPE)."""


class Learned(Position):
    """One learned vector per place, added to the embedding. Source: Radford et al. 2018 (GPT), section 3.1."""

    uses = frozenset({"embed"})

    def __init__(self, *, d_model: int, d_head: int, n_heads: int, max_len: int, causal: bool) -> None:
        super().__init__(d_model=d_model, d_head=d_head, n_heads=n_heads, max_len=max_len, causal=causal)
        check_memory(max_len * d_model, f"a learned position table for data.seq_len={max_len}")
        self.table = nn.Embedding(max_len, d_model)
        self.limit = max_len

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        return x + self.table(offset(pos))


class Sinusoidal(Position):
    """Fixed sines and cosines, added to the embedding; any length, any width.

    Source: Vaswani et al. 2017, section 3.5. The embedding is not multiplied by sqrt(d_model).
    """

    uses = frozenset({"embed"})

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        return x + sinusoids(offset(pos), x.size(-1)).to(x.dtype)


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


def sinusoids(place: Tensor, d: int) -> Tensor:
    """(…) places -> (…, d) in float32: sin and cos of one frequency side by side."""
    angle = place[..., None].float() * frequencies(d, 10000.0, place.device)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)[..., :d]
