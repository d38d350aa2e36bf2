"""What the model loses without a head, or a set of heads, and what it loses without as many others.

A weight is not a cause. A head matters for a role if answers get worse when it is switched off, and worse than when
others are switched off in its place.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from torch import nn

from minitf.analysis.forward import Batch
from minitf.analysis.scores import Score, changes, scores
from minitf.analysis.sites import Site
from minitf.tap import Tap, zero_heads

Place = tuple[Site, int]
Ablate = Callable[[nn.Module, Sequence[Place]], AbstractContextManager]


@dataclass(frozen=True)
class Effect:
    """What was lost without some heads.

    Args:
        heads: which ones.
        lost: ALL and each role -> how much worse the answers are, see `scores.changes`.
        controls: the same without as many other heads, one for each draw; the heads of a draw beside it.
    """

    heads: tuple[Place, ...]
    lost: dict[str, float]
    controls: tuple[tuple[tuple[Place, ...], dict[str, float]], ...] = ()


def zeroed(model: nn.Module, heads: Sequence[Place]) -> AbstractContextManager:
    """Switch heads off: what they read is 0 while the block lasts. Source: Michel et al. 2019, section 2.3."""
    by_site: dict[Site, list[int]] = {}
    for site, head in heads:
        by_site.setdefault(site, []).append(head)
    return Tap(model, edit={site.point("heads"): zero_heads(numbers) for site, numbers in by_site.items()})


class Effects:
    """Ablations of one model on the same rows; each set of heads is measured once.

    Args:
        model: see `minitf.analysis.forward.run`.
        batches: see `minitf.analysis.scores.scores`; read once for each set.
        measure: "accuracy" or "loss".
        ablate: how heads are switched off.

    Attributes:
        full: scores of the whole model.
    """

    def __init__(
        self, model: nn.Module, batches: Iterable[Batch], measure: str = "accuracy", ablate: Ablate = zeroed
    ) -> None:
        self.model, self.batches, self.measure, self.ablate = model, list(batches), measure, ablate
        self.full: dict[str, Score] = scores(model, self.batches)
        self._known: dict[frozenset[Place], dict[str, float]] = {}

    def lost(self, heads: Sequence[Place]) -> dict[str, float]:
        """ALL and each role -> how much worse the answers are without these heads."""
        key = frozenset(heads)
        if key not in self._known:
            with self.ablate(self.model, sorted(key, key=_order)):
                self._known[key] = changes(self.full, scores(self.model, self.batches), self.measure)
        return self._known[key]

    def of_each(self, places: Sequence[Place]) -> dict[Place, Effect]:
        """Each head alone; its controls are the other heads of its site.

        Args:
            places: heads.
        """
        single = {place: self.lost([place]) for place in places}
        found = {}
        for place, lost in single.items():
            others = [other for other in places if other[0] == place[0] and other != place]
            found[place] = Effect((place,), lost, tuple(((other,), single[other]) for other in others))
        return found

    def of_set(self, heads: Sequence[Place], others: Sequence[Place], n_draws: int = 5, seed: int = 0) -> Effect:
        """A set of heads; its controls are sets of as many of the others, drawn at random.

        Args:
            heads: the set.
            others: what is drawn from. With fewer of them than heads there is no fair control: then none is drawn.
            n_draws: how many sets, at most as many as there are different ones.
            seed: of the draws.
        """
        lost = self.lost(heads)
        draws = random_sets(others, len(heads), n_draws, seed)
        return Effect(tuple(heads), lost, tuple((draw, self.lost(draw)) for draw in draws))


def random_sets(others: Sequence[Place], size: int, n_draws: int, seed: int) -> list[tuple[Place, ...]]:
    """Different sets of `size` of the others, at most `n_draws`; none where there are not enough others.

    Args:
        others: what is drawn from.
        size: of a set.
        n_draws: wanted.
        seed: of the draws.
    """
    if size < 1 or len(others) < size:
        return []
    rng = random.Random(seed)
    found: dict[frozenset[Place], tuple[Place, ...]] = {}
    for _ in range(20 * n_draws):  # where few sets are different, all of them are met soon
        if len(found) == n_draws:
            break
        draw = tuple(sorted(rng.sample(list(others), size), key=_order))
        found.setdefault(frozenset(draw), draw)
    return list(found.values())


def beyond_controls(effect: Effect, name: str) -> bool | None:
    """Whether more was lost without the set than without any control; None without controls.

    Args:
        effect: of a set.
        name: ALL or a role.
    """
    if not effect.controls:
        return None
    return effect.lost[name] > max(lost[name] for _, lost in effect.controls)


def by_place(sites: Mapping[Site, Sequence[int]]) -> list[Place]:
    """Heads one by one."""
    return [(site, head) for site, heads in sites.items() for head in heads]


def _order(place: Place) -> tuple[str, int]:
    return place[0].prefix, place[1]
