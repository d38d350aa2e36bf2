"""What each role loses without a head, or a set of heads, and what it loses without as many others.

A weight is not a cause. A head matters for a role if its answers get worse when it is switched off, and worse than when
others are switched off in its place.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import nn

from minitf.analysis.by_role import Answered, answered, changes
from minitf.analysis.forward import Batch
from minitf.analysis.intervene.ablate import ablate, head_means
from minitf.analysis.intervene.choice import Head, grouped


@dataclass(frozen=True)
class RoleEffect:
    """What was lost without some heads.

    Args:
        heads: which ones.
        lost: ALL and each role -> how much worse the answers are, see `by_role.changes`.
        controls: as many other heads, and what was lost without them; one pair for each draw.
    """

    heads: tuple[Head, ...]
    lost: dict[str, float]
    controls: tuple[tuple[tuple[Head, ...], dict[str, float]], ...] = ()

    def beyond_controls(self, name: str) -> bool | None:
        """Whether more was lost than without any control, of ALL or a role; None without controls."""
        if not self.controls:
            return None
        return self.lost[name] > max(lost[name] for _, lost in self.controls)


class Effects:
    """Ablations of one model on the same rows; each set of heads is measured once.

    Args:
        model: see `minitf.analysis.forward.run`.
        batches: see `minitf.analysis.by_role.answered`; read once for each set.
        measure: "accuracy" or "loss", see `by_role.changes`.
        how: heads are switched off, see `ablate`.
        seed: for "resample".

    Attributes:
        full: scores of the whole model.

    Raises:
        ConfigError: as `ablate`.
    """

    def __init__(
        self, model: nn.Module, batches: Iterable[Batch], measure: str = "accuracy", how: str = "zero", seed: int = 0
    ) -> None:
        self.model, self.batches, self.measure = model, list(batches), measure
        self.how = {"how": how, "seed": seed, "means": head_means(model, self.batches) if how == "mean" else None}
        self.full: dict[str, Answered] = answered(model, self.batches)
        self._known: dict[frozenset[Head], dict[str, float]] = {}

    def lost(self, heads: Sequence[Head]) -> dict[str, float]:
        """ALL and each role -> how much worse the answers are without these heads."""
        key = frozenset(heads)
        if key not in self._known:
            with ablate(self.model, grouped(sorted(key, key=_order)), **self.how):
                self._known[key] = changes(self.full, answered(self.model, self.batches), self.measure)
        return self._known[key]

    def of_each(self, heads: Sequence[Head]) -> dict[Head, RoleEffect]:
        """Each head alone; its controls are all others of its site, whether they are asked for or not.

        Args:
            heads: which ones.
        """
        found = {}
        for site, number in heads:
            others = [(site, other) for other in range(site.n_heads) if other != number]
            controls = tuple(((other,), self.lost([other])) for other in others)
            found[site, number] = RoleEffect(((site, number),), self.lost([(site, number)]), controls)
        return found

    def of_set(self, heads: Sequence[Head], others: Sequence[Head], n_draws: int = 5, seed: int = 0) -> RoleEffect:
        """A set of heads; its controls are sets of as many others, drawn at random.

        Args:
            heads: the set.
            others: what is drawn from. With fewer of them than heads there is no fair control: then none is drawn.
            n_draws: how many sets, at most as many as there are different ones.
            seed: of the draws.
        """
        draws = different_sets(others, len(heads), n_draws, seed)
        return RoleEffect(tuple(heads), self.lost(heads), tuple((draw, self.lost(draw)) for draw in draws))


def different_sets(others: Sequence[Head], size: int, n_draws: int, seed: int) -> list[tuple[Head, ...]]:
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
    found: dict[frozenset[Head], tuple[Head, ...]] = {}
    for _ in range(20 * n_draws):  # where few sets are different, all of them are met soon
        if len(found) == n_draws:
            break
        draw = tuple(sorted(rng.sample(list(others), size), key=_order))
        found.setdefault(frozenset(draw), draw)
    return list(found.values())


def _order(head: Head) -> tuple[str, int]:
    return head[0].prefix, head[1]
