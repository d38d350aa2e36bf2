"""Attention without some of its edges, or with rows that are no longer its own: is the pattern an explanation?"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from minitf.analysis.forward import Batch, evaluating, positions, run
from minitf.analysis.intervene.choice import Heads, check_heads, grouped
from minitf.analysis.intervene.choice import all_heads as every_head
from minitf.analysis.visible import visible
from minitf.errors import ConfigError
from minitf.tap import Edit, Tap

HIDDEN = -1e9  # a score that gets no weight beside any other, and that a normaliser can still calculate with
ROWS = ("uniform", "permute")


def knock_out(model: nn.Module, edges: Tensor, heads: Heads) -> Tap:
    """Attention that cannot use some edges, inside of a `with` block: the other keys share the weight, as if masked.

    A row that loses all its keys reads nothing. Parts that count the visible keys, normalize=sigmoid and
    score=log_length, still count those that are cut.

    Args:
        model: any with tap points.
        edges: bool, (T,S) or (B,T,S), True where query i may not read key j.
        heads: site -> numbers of the heads that cannot.

    Raises:
        ConfigError: no such head.

    Source: Geva et al. 2023, section 4 (attention knockout).
    """
    check_heads(model, heads)
    edges = edges[None, None] if edges.dim() == 2 else edges[:, None]
    edit: dict[str, Edit] = {}
    for site, found in heads.items():
        own = torch.zeros(site.n_heads, 1, 1, dtype=torch.bool, device=edges.device)
        own[list(found)] = True
        edit[site.point("scores")] = _fill(edges & own, HIDDEN)
        edit[site.point("weights")] = _fill(edges & own, 0.0)
    return Tap(model, edit=edit)


def other_rows(model: nn.Module, batch: Batch, heads: Heads, how: str = "permute", seed: int = 0) -> Tap:
    """Rows of attention that know nothing of their query, inside of a `with` block that runs this batch.

    Args:
        model: any with tap points.
        batch: that is run; it says which keys are visible.
        heads: site -> numbers of the heads whose rows change.
        how: "permute": each row's own weights, shuffled among its visible keys; "uniform": the row's sum, shared out
            evenly among them.
        seed: of the shuffle.

    Raises:
        ConfigError: no such head or way.

    Source: Jain and Wallace 2019, section 4.2.1 (permutation).
    """
    check_heads(model, heads)
    if how not in ROWS:
        raise ConfigError(f"how ({how!r}) must be one of {', '.join(ROWS)}")
    generator = torch.Generator().manual_seed(seed)
    edit: dict[str, Edit] = {}
    for site, found in heads.items():
        seen = visible(model, site, batch)[1]
        edit[site.point("weights")] = _rows(list(found), seen, how, generator)
    return Tap(model, edit=edit)


def total_variation(p: Tensor, q: Tensor) -> Tensor:
    """Half the l1 distance of two distributions along the last axis: 0 equal, 1 disjoint."""
    return (p - q).abs().sum(-1) / 2


def row_test(
    model: nn.Module,
    batch: Batch,
    heads: Heads | None = None,
    how: str = "permute",
    classes: Mapping[str, Tensor] | None = None,
    n_draws: int = 1,
    seed: int = 0,
) -> dict[str, float]:
    """Is attention not explanation? Median total variation distance of the output, with rows that are not its own.

    0: the pattern does not matter; 1: it decides. The same head can do both, so look at classes of positions.

    Args:
        model: in any mode; it is evaluated.
        batch: as for `minitf.analysis.forward.run`.
        heads, how, seed: as for `other_rows`; heads None: all of them. One layer at a time says more.
        classes: name -> bool (B,T), positions of the output; None: all real tokens, as "all".
        n_draws: shuffles; the median is over positions and draws.

    Returns:
        name of the class -> median; NaN where it has no position.

    Source: Jain and Wallace 2019, section 4.2; Wiegreffe and Pinter 2019.
    """
    heads = grouped(every_head(model)) if heads is None else heads
    real = positions(batch, "self")[0] >= 0
    classes = {"all": real} if classes is None else classes
    distances = []
    with evaluating(model), torch.no_grad():
        own = run(model, batch).float().softmax(-1)
        for draw in range(n_draws if how == "permute" else 1):
            with other_rows(model, batch, heads, how, seed + draw):
                distances.append(total_variation(own, run(model, batch).float().softmax(-1)))
    found = torch.stack(distances)  # (draws,B,T)
    return {
        name: float(found[:, where].median()) if bool(where.any()) else float("nan") for name, where in classes.items()
    }


def _fill(where: Tensor, number: float) -> Edit:
    return lambda value: value.masked_fill(where, number)


def _rows(heads: list[int], seen: Tensor, how: str, generator: torch.Generator) -> Edit:
    def edit(value: Tensor) -> Tensor:
        rows = value[:, heads]
        shown = seen.expand_as(rows)
        if how == "uniform":
            new = shown * (rows.sum(-1, keepdim=True) / shown.sum(-1, keepdim=True).clamp_min(1))
        else:
            drawn = torch.rand(rows.shape, generator=generator).to(rows.device)
            # visible keys first, once at random, once in order: the n-th of one gives its weight to that of the other
            drawn = drawn.masked_fill(~shown, 2.0).argsort(-1)
            place = (~shown).int().argsort(dim=-1, stable=True)
            new = torch.zeros_like(rows).scatter(-1, place, rows.gather(-1, drawn))
        value = value.clone()
        value[:, heads] = new.to(value)
        return value

    return edit
