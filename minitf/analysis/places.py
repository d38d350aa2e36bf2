"""The layers of a model, and what of each can be measured, found by tap points."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from minitf.analysis.sites import Site, sites
from minitf.tap import Tap

OUT = ".resid_out"


@dataclass(frozen=True)
class Place:
    """A layer with its residual stream and its self-attention, or the cross-attention of one.

    Args:
        kind, layer: as of a `Site`.
        stream: prefix of the layer's tap points, such as "layers.1"; None: it has none of its own.
        site: its attention; None: it has none.
    """

    kind: str
    layer: int
    stream: str | None
    site: Site | None

    @property
    def name(self) -> str:
        """What people call it: "layer 5", "encoder layer 5", "cross-attention of layer 5"."""
        if self.kind == "cross":
            return f"cross-attention of layer {self.layer}"
        return f"layer {self.layer}" if self.kind == "self" else f"{self.kind} layer {self.layer}"


def places(model: nn.Module) -> list[Place]:
    """Every place of a model, in the order of its modules; [] for one that has nothing to tap."""
    by_prefix = {site.prefix: site for site in sites(model)}
    found = []
    for name in Tap.names(model):
        stream = name.removesuffix(OUT)
        if stream == name:
            continue
        parts = stream.split(".")
        kind = parts[0] if hasattr(model, "encode") and parts[0] in ("encoder", "decoder") else "self"
        layer = int(parts[-1]) if parts[-1].isdigit() else len(found)
        found.append(Place(kind, layer, stream, by_prefix.pop(f"{stream}.attention", None)))
        if cross := by_prefix.pop(f"{stream}.cross_attention", None):
            found.append(Place("cross", layer, None, cross))
    return found + [Place(site.kind, site.layer, None, site) for site in by_prefix.values()]
