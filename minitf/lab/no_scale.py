"""Mistake: the scale is forgotten."""

from __future__ import annotations

from minitf.blocks.score.dot import Dot


class NoScale(Dot):
    """softmax(q @ k.T) without the factor 1/sqrt(d_head)."""
