"""Attention weights of chosen heads, a piece at a time, so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from minitf.analysis.forward import Batch, evaluating, n_rows, positions, rows_of, run
from minitf.analysis.sites import Site, sites
from minitf.errors import ConfigError
from minitf.tap import Tap

MAX_BYTES = 2**28  # of weights and what goes with them, at a time
TRANSIENT = (
    4  # squares like the weights of a layer that are there while it is computed: scores, masked, weights, visible
)
Heads = Mapping[Site, Sequence[int]]


@dataclass(frozen=True)
class Captured:
    """What some heads of a site did in some rows of a batch.

    Args:
        site: where.
        heads: their numbers, n of them.
        start: the first of the b rows.
        weights: float32 (b,n,T,S), before dropout; 0 where hidden.
        visible: bool (b,T,S), which key the mask lets a query read.
        q_pos, k_pos: int64 (b,T), (b,S), which token each query and key is; -1: none.
        value_norms: float32 (b,n,S), lengths of the values; None where the site has none.
        outputs: float32 (b,n,T,d_v), what each head read; None unless asked for.
    """

    site: Site
    heads: tuple[int, ...]
    start: int
    weights: Tensor
    visible: Tensor
    q_pos: Tensor
    k_pos: Tensor
    value_norms: Tensor | None
    outputs: Tensor | None

    @property
    def rows(self) -> slice:
        """Its rows of the batch."""
        return slice(self.start, self.start + len(self.weights))


def capture(
    model: nn.Module,
    batch: Batch,
    heads: Heads | None = None,
    *,
    outputs: bool = False,
    max_bytes: int = MAX_BYTES,
) -> Iterator[Captured]:
    """Run a model over a batch and give out what its heads do, in evaluation mode, without gradients and caches.

    The rows of the batch are cut into pieces so that what is held at a time takes about `max_bytes`; one row of one
    site is the least. Where a single row of all sites is too much, the model runs once for each group of them. Of
    other heads nothing is kept longer than their layer is computed. The weights are computed beside the fast path, so
    that the model computes what it always does.

    Args:
        model, batch: as for `minitf.analysis.forward.run`.
        heads: site -> numbers of its heads; None: all heads of all sites.
        outputs: also give what the heads read.
        max_bytes: see above; the model's other activations come on top.

    Returns:
        Each site once for each piece; do not hold on to more of them than needed.

    Raises:
        ConfigError: max_bytes below 1, or a head that does not exist.
    """
    if max_bytes < 1:
        raise ConfigError(f"max_bytes ({max_bytes}) must be at least 1")
    wanted = all_heads(model) if heads is None else {site: tuple(found) for site, found in heads.items() if len(found)}
    for site, found in wanted.items():
        if odd := [head for head in found if not 0 <= head < site.n_heads]:
            raise ConfigError(f"{site.name(odd[0])} does not exist: {site.prefix} has heads 0 to {site.n_heads - 1}")
    return _pieces(model, batch, wanted, outputs, max_bytes)


def all_heads(model: nn.Module) -> dict[Site, tuple[int, ...]]:
    """Every site of a model with the numbers of all its heads."""
    return {site: tuple(range(site.n_heads)) for site in sites(model)}


def _pieces(model: nn.Module, batch: Batch, wanted: Heads, outputs: bool, max_bytes: int) -> Iterator[Captured]:
    groups, n_at_once = _plan(model, batch, wanted, outputs, max_bytes)
    for start in range(0, n_rows(batch), n_at_once):
        piece = rows_of(batch, start, start + n_at_once)
        for group in groups:
            found = _run(model, piece, start, group, outputs)
            while found:
                yield found.pop(0)


def _plan(model: nn.Module, batch: Batch, wanted: Heads, outputs: bool, max_bytes: int) -> tuple[list[Heads], int]:
    """Which sites go together, and how many rows."""
    lasting: dict[Site, int] = {}  # bytes of a row
    passing: dict[Site, int] = {}
    for site, heads in wanted.items():
        q_pos, k_pos = positions(batch, site.kind)
        square = q_pos.size(1) * k_pos.size(1)
        width = _width(model, site) if outputs else 0
        lasting[site] = (4 * len(heads) + 1) * square + 4 * len(heads) * (k_pos.size(1) + q_pos.size(1) * width)
        passing[site] = 4 * TRANSIENT * site.n_heads * square
    row = sum(lasting.values()) + max(passing.values(), default=0)
    if row <= max_bytes:
        return [wanted], max_bytes // max(row, 1)
    groups: list[dict[Site, Sequence[int]]] = []
    for site, heads in wanted.items():
        last = groups[-1] if groups else {}
        together = [*last, site]
        if last and sum(lasting[s] for s in together) + max(passing[s] for s in together) <= max_bytes:
            last[site] = heads
        else:
            groups.append({site: heads})
    return groups, 1


def _width(model: nn.Module, site: Site) -> int:
    """d_v, as far as it can be known without a pass."""
    module = model.get_submodule(site.prefix)
    return getattr(getattr(module, "projection", None), "d_value", 0)


@torch.no_grad()
def _run(model: nn.Module, batch: Batch, start: int, wanted: Heads, outputs: bool) -> list[Captured]:
    points = ("weights", "v", "heads") if outputs else ("weights", "v")
    known = set(Tap.names(model))
    keep = {}
    for site, heads in wanted.items():
        keeps = {"weights": partial(_of_heads, site, heads), "v": partial(_norms, site, heads)}
        keeps["heads"] = keeps["weights"]
        keep |= {site.point(point): keeps[point] for point in points if site.point(point) in known}
    visible: dict[Site, Tensor] = {}
    tap = Tap(model, at=list(keep), keep=lambda name, value: keep[name](value))
    with ExitStack() as stack:
        stack.enter_context(evaluating(model))
        for site in wanted:
            stack.callback(_watch_mask(model, site, visible))
        stack.enter_context(tap)
        run(model, batch)
    found = []
    for site, heads in wanted.items():
        weights = tap[site.point("weights")]
        seen = visible[site] if site in visible else (weights > 0).any(1, keepdim=True)
        seen = seen.expand(weights.size(0), 1, *weights.shape[2:])[:, 0]
        more = [tap.values.get(site.point(point)) for point in ("v", "heads")]
        found.append(Captured(site, tuple(heads), start, weights, seen, *positions(batch, site.kind), *more))
    return found


def _watch_mask(model: nn.Module, site: Site, found: dict[Site, Tensor]) -> Callable[[], None]:
    """Keep what the normaliser of a site is told to be visible, (B or 1, 1, T, S); returns what ends this."""
    normalize = getattr(model.get_submodule(site.prefix), "normalize", None)
    if not isinstance(normalize, nn.Module):
        return lambda: None

    def hook(module: nn.Module, arguments: tuple[Tensor, Tensor]) -> None:
        found[site] = arguments[1]

    return normalize.register_forward_pre_hook(hook).remove


def _of_heads(site: Site, heads: Sequence[int], value: Tensor) -> Tensor:
    if len(heads) < site.n_heads or list(heads) != sorted(heads):
        value = value[:, list(heads)]  # a copy, so that the other heads can be forgotten
    return value.float()


def _norms(site: Site, heads: Sequence[int], value: Tensor) -> Tensor:
    """Values (B,G,S,d_v) -> their lengths for each query head (B,n,S)."""
    norms = value.float().norm(dim=-1)
    return norms[:, [head * norms.size(1) // site.n_heads for head in heads]]
