"""Choosing heads: by name, all of them, at random."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import nn

from minitf.analysis.sites import Site, sites
from minitf.errors import ConfigError
from minitf.tap import Tap

Head = tuple[Site, int]
Heads = Mapping[Site, Sequence[int]]


def editable(model: nn.Module) -> list[Site]:
    """The sites whose heads can be changed: not those of a recurrent model, whose steps depend on each other."""
    known = set(Tap.names(model))
    return [site for site in sites(model) if site.point("heads") in known]


def all_heads(model: nn.Module) -> list[Head]:
    """Every head that can be changed, in the order of the layers."""
    return [(site, head) for site in editable(model) for head in range(site.n_heads)]


def heads_named(model: nn.Module, names: Iterable[str]) -> dict[Site, list[int]]:
    """Heads by their names, such as "1.0" or "cross 1.0".

    Raises:
        ConfigError: no such head; the message lists what there is.
    """
    known = {site.name(head): (site, head) for site, head in all_heads(model)}
    if odd := [name for name in names if name not in known]:
        raise ConfigError(
            f"there is no head {odd[0]!r}; this model has {', '.join(known) or 'none that can be changed'}"
        )
    return grouped(known[name] for name in names)


def grouped(heads: Iterable[Head]) -> dict[Site, list[int]]:
    """A list of heads as a mapping site -> numbers."""
    found: dict[Site, list[int]] = {}
    for site, head in heads:
        found.setdefault(site, []).append(head)
    return found


def listed(heads: Heads) -> list[Head]:
    """The inverse of `grouped`."""
    return [(site, head) for site, found in heads.items() for head in found]


def check_heads(model: nn.Module, heads: Heads) -> None:
    """Raise ConfigError, with what there is, unless each of the heads can be changed."""
    there = {site.prefix: site.n_heads for site in editable(model)}
    for site, found in heads.items():
        for head in found:
            if not 0 <= head < there.get(site.prefix, 0):
                has = ", ".join(f"{prefix} has heads 0 to {n - 1}" for prefix, n in there.items())
                raise ConfigError(f"there is no head {site.name(head)} to be changed; {has or 'this model has none'}")


def random_sets(pool: Sequence[Head], size: int, n: int, seed: int) -> list[list[Head]]:
    """`n` sets of `size` heads drawn from a pool, each without repetition: the control of an ablation.

    Raises:
        ConfigError: the pool is too small.
    """
    if size > len(pool):
        raise ConfigError(f"{size} heads cannot be drawn from the {len(pool)} that are left for the control")
    generator = torch.Generator().manual_seed(seed)
    return [[pool[i] for i in torch.randperm(len(pool), generator=generator)[:size].tolist()] for _ in range(n)]
