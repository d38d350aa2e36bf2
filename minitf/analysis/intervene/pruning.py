"""How many heads a task needs: a curve of heads taken away, and the smallest set that keeps most of the score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from minitf.analysis.intervene.ablate import ablate
from minitf.analysis.intervene.choice import Head, all_heads, grouped, random_sets
from minitf.analysis.scores import Score
from minitf.analysis.sites import Site
from minitf.errors import ConfigError


@dataclass(frozen=True)
class PruningCurve:
    """The score as heads are taken away.

    Args:
        removed: how many heads are gone, from 0 to all.
        by_importance: score at each of them, the least important heads first.
        random: the same in random orders, the control; show them all.
        order: the heads by importance, least first.
    """

    removed: tuple[int, ...]
    by_importance: tuple[float, ...]
    random: tuple[tuple[float, ...], ...]
    order: tuple[Head, ...]


@dataclass(frozen=True)
class SmallestSet:
    """A set of heads that keeps most of a score.

    Args:
        heads: those that are kept; all others are ablated.
        score, full: with the set alone, and of the whole model.
        controls: score with as many heads drawn at random.
    """

    heads: tuple[Head, ...]
    score: float
    full: float
    controls: tuple[float, ...]


def pruning_curve(
    model: nn.Module,
    score: Score,
    importance: Mapping[Site, Tensor | Sequence[float]],
    steps: Sequence[int] | None = None,
    how: str = "zero",
    n_random: int = 3,
    seed: int = 0,
    means: Mapping[Site, Tensor] | None = None,
) -> PruningCurve:
    """Take heads away by importance, and in random orders.

    Args:
        model: any with tap points.
        score: of a model.
        importance: site -> a number for each head, such as that of Michel et al.
        steps: at how many removed heads to measure; None: at each, from 0 to all.
        how, means: as for `ablate`.
        n_random: random orders.
        seed: of the orders.

    Raises:
        ConfigError: importance lacks a site, or a step beyond the number of heads.

    Source: Michel et al. 2019, section 4.2; Voita et al. 2019, section 6.
    """
    heads = all_heads(model)
    if missing := [site.prefix for site, _ in heads if site not in importance]:
        raise ConfigError(f"importance has no value for {missing[0]}: give one for each head of each site")
    steps = range(len(heads) + 1) if steps is None else steps
    if odd := [n for n in steps if not 0 <= n <= len(heads)]:
        raise ConfigError(f"{odd[0]} heads cannot be removed: this model has {len(heads)}")
    order = sorted(heads, key=lambda head: float(importance[head[0]][head[1]]))
    orders = [order, *random_sets(heads, len(heads), n_random, seed)]

    def course(one: Sequence[Head]) -> tuple[float, ...]:
        return tuple(_without(model, score, one[:n], how, means) for n in steps)

    by_importance, *random = map(course, orders)
    return PruningCurve(tuple(steps), by_importance, tuple(random), tuple(order))


def smallest_set(
    model: nn.Module,
    score: Score,
    share: float = 0.9,
    chance: float = 0.0,
    how: str = "zero",
    n_controls: int = 5,
    seed: int = 0,
    means: Mapping[Site, Tensor] | None = None,
) -> SmallestSet:
    """Drop the head that costs least, again and again, as long as `share` of the score above chance is kept.

    Greedy: a smaller set may exist. It takes about H^2 / 2 evaluations of the score.

    Args:
        model, score, how, means: as for `pruning_curve`.
        share: of full - chance that must be left.
        chance: score of guessing.
        n_controls: random sets of the same size.
        seed: of these.

    Raises:
        ConfigError: a share that is not between 0 and 1, or a model that is no better than chance.
    """
    if not 0 < share <= 1:
        raise ConfigError(f"share ({share}) must be above 0 and at most 1")
    heads = all_heads(model)
    full = score(model)
    if full <= chance:
        raise ConfigError(f"the whole model scores {full:.4g}, which is no better than chance ({chance:.4g})")
    least, kept, reached = chance + share * (full - chance), list(heads), full

    def with_only(some: Sequence[Head]) -> float:
        return _without(model, score, [head for head in heads if head not in some], how, means)

    while kept:
        trials = [(with_only([other for other in kept if other is not head]), i) for i, head in enumerate(kept)]
        best, i = max(trials, key=lambda trial: (trial[0], -trial[1]))
        if best < least:
            break
        reached = best
        del kept[i]
    sets = random_sets(heads, len(kept), n_controls, seed) if n_controls else []
    return SmallestSet(tuple(kept), reached, full, tuple(with_only(one) for one in sets))


def _without(
    model: nn.Module, score: Score, heads: Sequence[Head], how: str, means: Mapping[Site, Tensor] | None
) -> float:
    if not heads:
        return score(model)
    with torch.no_grad(), ablate(model, grouped(heads), how, means=means):
        return score(model)
