"""The battery: every score of every head, beside what null models reach, and the names that this allows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from minitf.analysis import forward
from minitf.analysis.attention_rows import SKIPPED
from minitf.analysis.capture import MAX_BYTES
from minitf.analysis.forward import Batch, n_rows
from minitf.analysis.heads.importance import Losses, importance, normalised
from minitf.analysis.heads.measure import LAYER, NO_SCORES, Measured, measure
from minitf.analysis.heads.names import Name, names_of
from minitf.analysis.sites import Site, sites
from minitf.errors import ConfigError

NOTHING = "no query of these rows can show it"
N_SHUFFLES = 20
QUANTILE = 0.95


@dataclass(frozen=True)
class HeadReport:
    """All that was measured of one head.

    Args:
        site, head: which one.
        scores: name -> number, see `measure.Measured`; besides "importance". None where there is none.
        untrained: name -> the largest that a head of this site has in any untrained model.
        shuffled: name -> quantile of the same head over shuffles of gold, or of tokens.
        baselines: role -> best fixed offset, the share of queries that it answers, number of queries.
        names: what the head may be called.
        reasons: name -> why a score is None.
    """

    site: Site
    head: int
    scores: dict[str, float | None]
    untrained: dict[str, float]
    shuffled: dict[str, float]
    baselines: dict[str, tuple[int, float, int]]
    names: tuple[Name, ...]
    reasons: dict[str, str]

    @property
    def place(self) -> str:
        """Such as "1.0" or "cross 1.0"."""
        return self.site.name(self.head)

    def is_called(self, name: str) -> bool:
        """Whether it has this name."""
        return any(found.name == name for found in self.names)


@dataclass(frozen=True)
class LayerReport:
    """What was measured of the heads of a site together.

    Args:
        site: which one.
        scores: "js", "effective_heads" and "cka", means over pairs but for the second; "sink_share".
        untrained: name -> the same of each untrained model.
        reasons: name -> why a score is None.
    """

    site: Site
    scores: dict[str, float | None]
    untrained: dict[str, list[float | None]]
    reasons: dict[str, str]


@dataclass(frozen=True)
class Battery:
    """The result for a model.

    Args:
        heads, layers: in the order of the model's sites.
        settings: rows that were read, untrained models, shuffles, their quantile, and first rows skipped.
    """

    heads: list[HeadReport]
    layers: list[LayerReport]
    settings: dict[str, Any]

    def called(self, name: str) -> list[HeadReport]:
        """The heads with this name, such as "induction" or a role."""
        return [head for head in self.heads if head.is_called(name)]

    def __getitem__(self, place: str) -> HeadReport:
        """A head by its place, such as "1.0". Raises KeyError with those that there are."""
        for head in self.heads:
            if head.place == place:
                return head
        raise KeyError(f"there is no head {place!r}; there are {', '.join(head.place for head in self.heads)}")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: no NaN; what is missing is None and has a reason."""
        return {
            "settings": self.settings,
            "heads": [{"place": head.place, **asdict(head)} for head in self.heads],
            "layers": [asdict(layer) for layer in self.layers],
        }


def battery(
    model: nn.Module,
    batches: Iterable[Batch],
    untrained: Iterable[nn.Module] = (),
    *,
    n_shuffles: int = N_SHUFFLES,
    quantile: float = QUANTILE,
    skip: int = SKIPPED,
    losses: Losses | None = forward.losses,
    seed: int = 0,
    max_bytes: int = MAX_BYTES,
) -> Battery:
    """Measure every head of a model, and name those that are above both null models.

    The null models are untrained models, of which the best head of the same site counts since heads are alike before
    training, and shuffled answers: gold dealt out anew (see `shuffled.Shuffled`), and for duplicates and prefixes the
    tokens of each row in another order. Without untrained models no head gets a name.

    Args:
        model: any that `capture` can look into.
        batches: with "gold.<role>" where the data knows it, as `val_batches()` of data modules gives them.
        untrained: models of the same config and other seeds, three or more; they can be made one by one.
        n_shuffles: at least 1.
        quantile: of the shuffles that a head must be above.
        skip: first rows that do not count, see `rows.counted`.
        losses: of the task, for the importance of heads; None: leave it out.
        seed: of the shuffles.
        max_bytes: how much is held at a time, see `capture`.

    Raises:
        ConfigError: settings that cannot be; an untrained model with other heads.
        DataError: there are no batches.
    """
    if n_shuffles < 1 or not 0 < quantile <= 1:
        raise ConfigError(f"n_shuffles ({n_shuffles}) must be at least 1, quantile ({quantile}) above 0 and at most 1")
    batches = list(batches)
    settings = {"skip": skip, "seed": seed, "max_bytes": max_bytes}
    own = measure(model, batches, n_shuffles=n_shuffles, **settings)
    nulls = []
    for other in untrained:
        if sites(other) != list(own):
            raise ConfigError("an untrained model has other heads than the model: build it from the same config")
        nulls.append(measure(other, batches, **settings))
    _add_importance(model, batches, losses, own)
    about = {"rows": sum(map(n_rows, batches)), "untrained": len(nulls), "shuffles": n_shuffles, "quantile": quantile}
    return Battery(
        [head for site, found in own.items() for head in reports(site, found, [n[site] for n in nulls], quantile)],
        [_layer(site, found, [null[site] for null in nulls]) for site, found in own.items()],
        {**about, "skip": skip, "seed": seed},
    )


def _add_importance(
    model: nn.Module, batches: Sequence[Batch], losses: Losses | None, own: dict[Site, Measured]
) -> None:
    asks = all("targets" in batch or "label" in batch for batch in batches)
    found = normalised(importance(model, batches, losses)) if losses is not None and asks else {}
    for site, measured in own.items():
        if site in found:
            measured.scores["importance"] = found[site]
        else:
            measured.scores["importance"] = torch.full((site.n_heads,), torch.nan)
            why = "heads cannot be turned down here" if asks else "no loss is known, or it was not asked for"
            measured.reasons["importance"] = why


def reports(site: Site, own: Measured, nulls: Sequence[Measured], quantile: float = QUANTILE) -> Iterator[HeadReport]:
    """A report for each head of a site.

    Args:
        site: which one.
        own: what was measured of the model, by `measure` or `syntax.measure_syntax`.
        nulls: the same of untrained models.
        quantile: of the shuffles that a head must be above.
    """
    untrained = {
        name: value
        for name in own.scores
        if name not in NO_SCORES
        and (value := _largest([n.scores[name] for n in nulls if name in n.scores])) is not None
    }
    for head in range(site.n_heads):
        of_shuffles = {name: value[:, head] for name, value in own.shuffled.items()}
        dealt = {name: float(v.quantile(quantile)) for name, v in of_shuffles.items() if v.isfinite().all()}
        scores = {name: _number(value[head]) for name, value in own.scores.items()}
        scores |= {name: None for name in own.reasons if name not in LAYER and name not in scores}
        reasons = {name: own.reasons.get(name, NOTHING) for name, value in scores.items() if value is None}
        # a score with answers to shuffle needs that null model too
        compared = {
            name: [value, *([dealt[name]] if name in dealt else [])]
            for name, value in untrained.items()
            if name in dealt or name not in own.shuffled
        }
        named = tuple(names_of(scores, compared, own.baselines))
        yield HeadReport(site, head, scores, untrained, dealt, dict(own.baselines), named, reasons)


def _layer(site: Site, own: Measured, nulls: Sequence[Measured]) -> LayerReport:
    scores = {name: _number(own.layer.get(name, math.nan)) for name in LAYER}
    untrained = {name: [_number(null.layer.get(name, math.nan)) for null in nulls] for name in LAYER}
    reasons = {name: own.reasons.get(name, NOTHING) for name, value in scores.items() if value is None}
    return LayerReport(site, scores, untrained, reasons)


def _largest(values: Sequence[Tensor]) -> float | None:
    """The largest number in several tensors, None if there is none."""
    every = torch.cat([value[value.isfinite()] for value in values]) if values else torch.empty(0)
    return float(every.max()) if len(every) else None


def _number(value: float | Tensor) -> float | None:
    """None for NaN."""
    value = float(value)
    return value if math.isfinite(value) else None
