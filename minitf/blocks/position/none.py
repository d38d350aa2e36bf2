"""No position scheme."""

from __future__ import annotations

from minitf.blocks.position import Position


class NoPosition(Position):
    """No position at all: only the mask tells order. Source: Kazemnejad et al. 2023 (NoPE)."""
