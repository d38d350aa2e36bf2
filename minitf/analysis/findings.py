"""Everything that is found out about the heads of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from minitf.errors import DataError

if TYPE_CHECKING:
    from torch import nn

    from minitf.analysis.by_role import Answered
    from minitf.analysis.forward import Batch
    from minitf.analysis.heads.battery import Battery, HeadReport
    from minitf.analysis.intervene.choice import Head
    from minitf.analysis.intervene.effects import RoleEffect
    from minitf.analysis.sites import Site


@dataclass(frozen=True)
class Findings:
    """What was found.

    Args:
        battery: scores and names of every head.
        shown: the heads that were asked for.
        measure: what effects are changes of, "accuracy" or "loss" (nats).
        full: class of answers -> score of the whole model.
        effects: of each shown head alone.
        sets: name -> of all heads with that name together.
        about: run, checkpoint, data and settings, as plain values.
    """

    battery: Battery
    shown: Mapping[Site, Sequence[int]]
    measure: str
    full: Mapping[str, Answered]
    effects: Mapping[Head, RoleEffect]
    sets: Mapping[str, RoleEffect]
    about: dict[str, Any] = field(default_factory=dict)

    def heads(self) -> list[HeadReport]:
        """Reports of the shown heads."""
        return [head for head in self.battery.heads if head.head in self.shown.get(head.site, ())]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            **self.about,
            "measure": self.measure,
            "full": {name: {"loss": s.loss, "accuracy": s.accuracy, "n": s.n} for name, s in self.full.items() if s.n},
            **self.battery.to_dict(),
            "effects": {_name(place): _effect(effect) for place, effect in self.effects.items()},
            "sets": {name: {"heads": list(map(_name, e.heads)), **_effect(e)} for name, e in self.sets.items()},
        }


def find_out(
    model: nn.Module,
    batches: Sequence[Batch],
    untrained: Iterator[nn.Module],
    shown: Mapping[Site, Sequence[int]],
    *,
    measure: str,
    ablate: str,
    n_shuffles: int,
    n_draws: int,
    seed: int,
    about: dict[str, Any],
) -> Findings:
    """Measure, name, switch off.

    Args:
        model: of the run.
        batches: rows, with gold where it is known.
        untrained: models of its config and other seeds.
        shown: the heads whose effects are wanted.
        measure: "accuracy" or "loss".
        ablate: what a head gives on that is switched off: "zero", "mean" or "resample".
        n_shuffles: of the gold.
        n_draws: random sets beside each named set.
        seed: of shuffles and draws.
        about: goes into the findings.

    Raises:
        DataError: the model's loss is not finite.
    """
    from minitf.analysis.by_role import ALL
    from minitf.analysis.heads.battery import battery
    from minitf.analysis.intervene.choice import editable, listed
    from minitf.analysis.intervene.effects import Effects

    effects = Effects(model, batches, measure, ablate, seed)
    if effects.full[ALL].n and not math.isfinite(effects.full[ALL].nll):
        raise DataError(
            f"the loss of this model is {effects.full[ALL].nll} on these rows, so nothing can be said of its heads: "
            "take an earlier checkpoint=STEP, or train again with a smaller learning rate"
        )
    found = battery(model, batches, untrained, n_shuffles=n_shuffles, seed=seed)
    tried = set(editable(model))  # recurrent models mix what their heads read at once
    places = [head for head in listed(shown) if head[0] in tried]
    sets = {}
    for name in dict.fromkeys(name.name for head in found.heads for name in head.names):
        own = [(head.site, head.head) for head in found.called(name) if head.site in tried]
        if own:
            sets[name] = effects.of_set(own, _others(found, name, own), n_draws, seed)
    return Findings(found, shown, measure, effects.full, effects.of_each(places), sets, about)


def _others(found: Battery, name: str, own: Sequence[Head]) -> list[Head]:
    """What controls of a named set are drawn from: heads of the same kinds without a name; with another one, if few."""
    kinds = {site.kind for site, _ in own}
    others = [head for head in found.heads if head.site.kind in kinds and not head.is_called(name)]
    nameless = [head for head in others if not head.names]
    return [(head.site, head.head) for head in (nameless if len(nameless) > len(own) else others)]


def _effect(effect: RoleEffect) -> dict[str, Any]:
    return {
        "lost": _plain(effect.lost),
        "controls": [{"heads": list(map(_name, draw)), "lost": _plain(lost)} for draw, lost in effect.controls],
    }


def _plain(lost: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in lost.items() if math.isfinite(value)}  # NaN: nothing is asked


def _name(place: Head) -> str:
    return place[0].name(place[1])
