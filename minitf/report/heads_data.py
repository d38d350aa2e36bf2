"""What a page about heads shows, as plain values: whoever has measured something fills these in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from minitf.report.pack import Array, to_numpy


@dataclass(frozen=True)
class LayerHeads:
    """The heads of one layer that the page shows.

    Args:
        kind: "self", "encoder", "decoder" or "cross".
        layer: its number in the model.
        heads: their numbers in the layer.
    """

    kind: str
    layer: int
    heads: tuple[int, ...]


@dataclass(frozen=True)
class Role:
    """How well a head fits one role.

    Args:
        role: its name, "previous token".
        score: larger is better.
        null: the same score where there is nothing to find: an untrained model, or shuffled gold.
        baseline: what a rule without the model reaches, for example the best fixed offset.
        named: whether the head is called so. Whoever measured decides, but never without a null, nor at or below the
            null or the baseline.
    """

    role: str
    score: float
    null: float | None = None
    baseline: float | None = None
    named: bool = False

    def __post_init__(self) -> None:
        beaten = [value for value in (self.null, self.baseline) if value is not None]
        above = self.null is not None and all(self.score > value for value in beaten)
        if self.named and not above:
            raise ValueError(
                f"a head is called '{self.role}' only above its null and its baseline: {self.score}, {self.null}, "
                f"{self.baseline}"
            )


@dataclass(frozen=True)
class TopRow:
    """A row of the data where a head is very active.

    Args:
        tokens: its tokens.
        activity: 0..1 for each of them.
        label: where it comes from, "validation row 12".
    """

    tokens: Sequence[str]
    activity: Sequence[float]
    label: str = ""


@dataclass(frozen=True)
class Head:
    """One head: what it is called, what happens without it, what was measured.

    Args:
        kind, layer, head: which one.
        roles: every role that was measured, named or not.
        effect: change of the model's score when the head is switched off; None: not tried.
        controls: the same for others instead of it: random heads, or random sets of the same size.
        metrics: further numbers, "entropy": 0.4.
        top_rows: rows where it is most active, the first one most.
    """

    kind: str
    layer: int
    head: int
    roles: tuple[Role, ...] = ()
    effect: float | None = None
    controls: tuple[float, ...] = ()
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    top_rows: tuple[TopRow, ...] = ()


@dataclass(frozen=True)
class Attention:
    """The maps of one kind for one example.

    Args:
        kind: of the layers.
        queries, keys: tokens: T of them and S of them.
        weights: per layer of that kind, in the order of the page's layers, (H,T,S): its shown heads. One array
            (L,H,T,S) will do. Rows may sum to less than 1; values are in 0..1.
        visible: bool (T,S), or (L,T,S) where layers differ, True where a query may read a key; None: everywhere.
    """

    kind: str
    queries: Sequence[str]
    keys: Sequence[str]
    weights: Sequence[Array]
    visible: Array | None = None

    def mask(self) -> np.ndarray:
        """bool (L,T,S) or (1,T,S)."""
        shape = (len(self.queries), len(self.keys))
        found = np.ones(shape, dtype=bool) if self.visible is None else to_numpy(self.visible).astype(bool)
        return found if found.ndim == 3 else found[None]


@dataclass(frozen=True)
class Example:
    """One input of the model and its maps, at most one `Attention` for each kind."""

    label: str
    attention: tuple[Attention, ...]


@dataclass(frozen=True)
class Snapshot:
    """The model at one step of its training.

    Args:
        step: of the optimiser.
        scores: role -> score of every head, in the order of `HeadsPage.sites()`; None: not measured.
        weights: kind -> maps of the page's first example, as in `Attention`; empty: not kept.
    """

    step: int
    scores: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    weights: Mapping[str, Sequence[Array]] = field(default_factory=dict)


class HeadPlace(NamedTuple):
    """Which head; what people write "cross 1.0"."""

    kind: str
    layer: int
    head: int


@dataclass(frozen=True)
class HeadsPage:
    """Everything on a page about heads.

    Args:
        title: of the page, for example the run's name.
        layers: the shown heads, layer by layer; they fix the order of maps.
        heads: one for each shown head, in any order.
        examples: the first one is shown first.
        command: that made the page; it can be copied.
        question: one or two sentences: what was asked of which model on which data.
        effect_of: the score that ablation changes, "accuracy of the second copy".
        snapshots: of the training, in order.
        health: measure -> layer -> (step, value) points.
        notes: sentences that stand at the end: what was left out, how something was measured.
    """

    title: str
    layers: tuple[LayerHeads, ...]
    heads: tuple[Head, ...]
    examples: tuple[Example, ...]
    command: str = ""
    question: str = ""
    effect_of: str = ""
    snapshots: tuple[Snapshot, ...] = ()
    health: Mapping[str, Mapping[int, Sequence[tuple[float, float]]]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        named = [HeadPlace(h.kind, h.layer, h.head) for h in self.heads]
        if sorted(named) != sorted(self.sites()):
            raise ValueError(f"`heads` must be the heads of `layers`: {self.sites()}, got {named}")
        if not self.examples:
            raise ValueError("a page about heads needs an example")
        for example in self.examples:
            if {a.kind for a in example.attention} != set(self.kinds()):
                raise ValueError(f"example '{example.label}' must have maps of {self.kinds()}")
            for a in example.attention:
                self._check(a.weights, a.kind, (len(a.queries), len(a.keys)))
                if a.mask().shape[1:] != (len(a.queries), len(a.keys)):
                    raise ValueError(f"`visible` must be ({len(a.queries)}, {len(a.keys)}), got {a.mask().shape}")
        sizes = {a.kind: (len(a.queries), len(a.keys)) for a in self.examples[0].attention}
        for snapshot in self.snapshots:
            for kind, weights in snapshot.weights.items():
                self._check(weights, kind, sizes[kind])
            if any(len(scores) != len(self.heads) for scores in snapshot.scores.values()):
                raise ValueError(f"step {snapshot.step}: each role needs {len(self.heads)} scores, one for a head")

    def _check(self, weights: Sequence[Array], kind: str, size: tuple[int, int]) -> None:
        want = [(len(layer.heads), *size) for layer in self.layers if layer.kind == kind]
        got = [tuple(w.shape) for w in weights]
        if got != want:
            raise ValueError(f"the maps of kind '{kind}' must have the shapes {want}, got {got}")

    def kinds(self) -> list[str]:
        """Kinds of attention, in the order of the layers."""
        return list(dict.fromkeys(layer.kind for layer in self.layers))

    def sites(self) -> list[HeadPlace]:
        """Every shown head, layer by layer."""
        return [HeadPlace(layer.kind, layer.layer, h) for layer in self.layers for h in layer.heads]
