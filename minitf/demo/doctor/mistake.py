"""What a mistake is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    """What breaks laws.

    Args:
        name: what the lab calls it, or "" where it has none.
        told: in words.
        breaks: names of the laws that it breaks by itself.
    """

    name: str
    told: str
    breaks: frozenset[str]
