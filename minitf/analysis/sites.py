"""Where a model attends: each attention module is a site, found by its tap points."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from minitf.tap import Tap

WEIGHTS = ".weights"


@dataclass(frozen=True)
class Site:
    """An attention module of a model.

    Args:
        kind: "self" of a decoder-only or encoder-only model; "encoder", "decoder" or "cross" of a model that reads a
            source.
        layer: its number, from 0.
        prefix: of its tap points, such as "layers.1.attention".
        n_heads: query heads H.
    """

    kind: str
    layer: int
    prefix: str
    n_heads: int

    def point(self, name: str) -> str:
        """The tap name of one of its points, such as "weights"."""
        return f"{self.prefix}.{name}"

    def name(self, head: int) -> str:
        """What people call a head: "1.0", "cross 1.0"."""
        number = f"{self.layer}.{head}"
        return number if self.kind == "self" else f"{self.kind} {number}"


def sites(model: nn.Module) -> list[Site]:
    """Every site of a model, in the order of its modules; [] for one that does not attend.

    Args:
        model: any module whose attention modules can be tapped at "weights". That of a layer's `cross_attention` reads
            a source; so does one that lies in neither encoder nor decoder of a model with `encode`, such as the
            attention of a recurrent model.
    """
    found = []
    for name in Tap.names(model):
        prefix = name.removesuffix(WEIGHTS)
        if prefix != name:
            parts = prefix.split(".")
            numbers = [int(part) for part in parts if part.isdigit()]
            n_heads = getattr(model.get_submodule(prefix), "n_heads", 1)
            found.append(Site(_kind(model, parts), numbers[-1] if numbers else 0, prefix, n_heads))
    return found


def _kind(model: nn.Module, parts: list[str]) -> str:
    if parts[-1] == "cross_attention":
        return "cross"
    if not hasattr(model, "encode"):
        return "self"
    return parts[0] if parts[0] in ("encoder", "decoder") else "cross"
