"""Rows of the data as examples: their tokens and the maps of every shown head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn

from minitf.analysis.capture import capture
from minitf.analysis.forward import Batch, positions
from minitf.report.heads_data import Attention, Example, LayerHeads

if TYPE_CHECKING:
    from minitf.analysis.sites import Site

SIDES = (("ids", "pos"), ("src", "src_pos"))


class Symbols(Protocol):
    """What is asked of data."""

    def symbols(self, ids: Sequence[int]) -> list[str]:
        """What people read for ids of "ids"."""

    def src_symbols(self, ids: Sequence[int]) -> list[str]:
        """What people read for ids of "src"."""


def shortened(row: Batch, max_tokens: int) -> dict[str, Tensor]:
    """A batch of one row without padding, and with the first tokens only.

    Args:
        row: of one row.
        max_tokens: of each side.
    """
    found = {}
    for ids, pos in SIDES:
        if ids not in row:
            continue
        real = (row[pos][0] >= 0).nonzero()[:, 0] if pos in row else torch.arange(row[ids].size(1))
        kept = real[:max_tokens]
        found[ids] = row[ids][:, kept]
        if pos in row:
            found[pos] = row[pos][:, kept]
    return found


def tokens(row: Batch, kind: str, data: Symbols) -> tuple[list[str], list[str]]:
    """Queries and keys of a kind of attention, as people read them.

    Args:
        row: from `shortened`.
        kind: of a site.
        data: knows its symbols.
    """
    target = data.symbols(row["ids"][0].tolist())
    source = data.src_symbols(row["src"][0].tolist()) if "src" in row else target
    return {"cross": (target, source), "encoder": (source, source)}.get(kind, (target, target))


def layers(shown: Mapping[Site, Sequence[int]]) -> tuple[LayerHeads, ...]:
    """The heads of a page, layer by layer."""
    return tuple(LayerHeads(site.kind, site.layer, tuple(heads)) for site, heads in shown.items())


def example(model: nn.Module, row: Batch, shown: Mapping[Site, Sequence[int]], data: Symbols, label: str) -> Example:
    """The maps of a row.

    Args:
        model: of the run.
        row: from `shortened`.
        shown: which heads.
        data: knows its symbols.
        label: of the example.
    """
    by_kind: dict[str, list] = {}
    for piece in capture(model, row, shown):
        by_kind.setdefault(piece.site.kind, []).append(piece)
    attention = []
    for kind, pieces in by_kind.items():
        queries, keys = tokens(row, kind, data)
        q_pos, k_pos = positions(row, kind)
        real = (q_pos[0] >= 0)[:, None] & (k_pos[0] >= 0)
        maps = [piece.weights[0].clamp(0, 1) for piece in pieces]
        visible = torch.stack([piece.visible[0] & real for piece in pieces])
        attention.append(Attention(kind, queries, keys, maps, visible.numpy()))
    return Example(label, tuple(attention))


def maps_of(made: Example) -> dict[str, list]:
    """Kind -> its maps, layer by layer."""
    return {attention.kind: list(attention.weights) for attention in made.attention}
