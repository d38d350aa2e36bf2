"""What a study is: a question, cells that differ in named overrides, seeds, and what is expected, in numbers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from omegaconf import OmegaConf

from minitf.config import compose, group_options
from minitf.errors import ConfigError

BUDGETS = ("steps", "parameters", "flops", "seconds")
KINDS = {  # an expectation has the keys of one kind, and perhaps those that all may have
    "level": ({"cell"}, {"at_least", "at_most"}),
    "more": ({"more", "than"}, {"by"}),
    "same": ({"same", "within"}, set()),
}
SHARED = {"metric", "when", "says", "control"}
TRIAL = ("trainer.max_steps=4", "schedule.warmup_steps=0")


@dataclass(frozen=True)
class Expectation:
    """One comparison that the claim predicts.

    Args:
        kind: "level": each seed of a cell lies at or above `low`, at or below `high`; "more": a cell has more than
            another, by at least `low`; "same": two cells differ by at most `high`.
        cells: one or two names.
        metric: what is compared.
        low, high: bounds, in the unit of the metric; None: open.
        when: the condition under which this is asked; "": always.
        says: what it means, for readers.
        control: no part of the claim, but what must be so for the study to say anything.
    """

    kind: str
    cells: tuple[str, ...]
    metric: str
    low: float | None = None
    high: float | None = None
    when: str = ""
    says: str = ""
    control: bool = False


@dataclass(frozen=True)
class Difference:
    """Why figures differ from those found before.

    Args:
        cells, metrics: whose; each cell with each metric that has a figure.
        why: the reason, with what shows it.
    """

    cells: tuple[str, ...]
    metrics: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Study:
    """One question and how it is decided; the content of a file of configs/study.

    Args:
        name: of the file.
        question, claim, source: in words; the claim is somebody's, the source says whose.
        covers: ids of the statements that it decides.
        base: overrides of configs/train.yaml that all cells share; of the arguments of `run` where there is one.
        cells: name -> further overrides.
        seeds: how many, counted from 0.
        budget: what all cells have alike: "steps", "parameters", "flops" or "seconds".
        measures: name -> node with `_target_`, called as f(subject, **arguments) -> {metric: number}, and perhaps `at`:
            "end" (the default), "start", or steps.
        run: node with `_target_`, called as f(seed, **arguments) -> {metric: number} instead of training.
        metric: the one that decides.
        expect: what the claim predicts.
        figures: cell -> metric -> (lowest, highest) as found before, with other code.
        differences: why some figures are not what was found before.
        smoke: overrides for a trial whose numbers mean nothing; without them a few steps of training.
        takes_long: whether it is left out where all studies are asked for.
        left_out: cells of the file that were not asked for.
    """

    name: str
    question: str
    claim: str
    source: str
    metric: str
    cells: Mapping[str, Sequence[str]]
    covers: Sequence[str] = ()
    base: Sequence[str] = ()
    seeds: int = 3
    budget: str = "steps"
    measures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    run: Mapping[str, Any] | None = None
    expect: Sequence[Expectation] = ()
    figures: Mapping[str, Mapping[str, tuple[float, float]]] = field(default_factory=dict)
    smoke: Sequence[str] | None = None
    differences: Sequence[Difference] = ()
    takes_long: bool = False
    left_out: Sequence[str] = ()

    @property
    def reference(self) -> str:
        """The cell whose budget the others get: the first."""
        return next(iter(self.cells))

    def overrides(self, cell: str, smoke: bool = False) -> list[str]:
        """What is typed for a cell: of one key, what comes last.

        Args:
            cell: its name.
            smoke: for a trial.
        """
        more = (() if self.run else TRIAL) if self.smoke is None else self.smoke
        typed = [*self.base, *self.cells[cell], *(more if smoke else ())]
        return list({_key(override): override for override in typed}.values())

    def only(self, cells: Sequence[str]) -> Study:
        """The study of some cells, with the expectations that speak of no other.

        Args:
            cells: names; in which order does not matter.

        Raises:
            ConfigError: one is not there.
        """
        if unknown := [cell for cell in cells if cell not in self.cells]:
            raise ConfigError(f"study={self.name} has no cell {unknown[0]!r}; there are {', '.join(self.cells)}")
        return replace(
            self,
            cells={cell: of for cell, of in self.cells.items() if cell in cells},
            expect=tuple(e for e in self.expect if set(e.cells) <= set(cells)),
            figures={cell: of for cell, of in self.figures.items() if cell in cells},
            left_out=tuple(cell for cell in self.cells if cell not in cells),
        )


def _key(override: str) -> str:
    return override.partition("=")[0].lstrip("+")


def load(name: str) -> Study:
    """The study of a file of configs/study.

    Raises:
        ConfigError: no such study, or a file that says something impossible.
    """
    options = group_options("study")
    if name not in options:
        raise ConfigError(f"study={name}: there is no such study; there are {', '.join(options)}")
    return read(name, OmegaConf.to_container(compose("ablate", [f"study={name}"]).study))


def read(name: str, node: Mapping[str, Any]) -> Study:
    """The study that a mapping describes.

    Args:
        name: of the study.
        node: as in a file of configs/study. `factors`, name -> level -> overrides, is a way to write `cells`: one for
            each combination, named "level, level".

    Raises:
        ConfigError: an unknown or missing key, overrides that are no list of texts, an expectation about a cell that is
            not there.
    """
    where, node = f"configs/study/{name}.yaml", _named(node)
    cells = {cell: _texts(where, f"cells of {cell!r}", of) for cell, of in (node.pop("cells", None) or {}).items()}
    if factors := node.pop("factors", None):
        for levels in itertools.product(*(levels.items() for levels in factors.values())):
            cells[", ".join(level for level, _ in levels)] = [
                o for level, overrides in levels for o in _texts(where, f"factors of {level!r}", overrides)
            ]
    for key in ("base", "covers", "smoke"):
        if key in node:
            node[key] = _texts(where, key, node[key])
    known = set(Study.__dataclass_fields__) - {"name", "left_out"}
    if unknown := sorted(set(node) - known):
        raise ConfigError(f"{where}: {unknown[0]} is not known; there are {', '.join(sorted({*known, 'factors'}))}")
    missing = [key for key in ("question", "claim", "source", "metric") if key not in node]
    if missing or not cells:
        raise ConfigError(f"{where} lacks {(missing or ['cells'])[0]}")
    if node.get("budget", "steps") not in BUDGETS:
        raise ConfigError(f"{where}: budget ({node['budget']!r}) must be one of {', '.join(BUDGETS)}")
    if not isinstance(node.get("takes_long", False), bool):
        raise ConfigError(f"{where}: takes_long ({node['takes_long']!r}) must be true or false")
    if not isinstance(node.get("seeds", 3), int) or node.get("seeds", 3) < 1:
        raise ConfigError(f"{where}: seeds ({node['seeds']!r}) must be a whole number of at least 1")
    expect = tuple(_expectation(where, e, node["metric"], cells) for e in node.pop("expect", ()))
    figures = {
        cell: {metric: (float(low), float(high)) for metric, (low, high) in of.items()}
        for cell, of in node.pop("figures", {}).items()
    }
    if unknown := sorted(set(figures) - set(cells)):
        raise ConfigError(f"{where}: figures of {unknown[0]!r}, which is no cell; there are {', '.join(cells)}")
    differences = tuple(_difference(where, of, figures) for of in node.pop("differences", ()))
    return Study(name=name, cells=cells, expect=expect, figures=figures, differences=differences, **node)


def _difference(where: str, node: Mapping[str, Any], figures: Mapping[str, Mapping[str, Any]]) -> Difference:
    if set(node) != {"cells", "metrics", "why"}:
        raise ConfigError(f"{where}: differences are lists of cells, metrics and why, got {dict(node)}")
    cells, metrics = (tuple(_texts(where, f"differences: {key}", node[key])) for key in ("cells", "metrics"))
    if unknown := [cell for cell in cells if not set(metrics) & set(figures.get(cell, ()))]:
        raise ConfigError(f"{where}: differences speak of {unknown[0]!r}, which has no figure of {', '.join(metrics)}")
    return Difference(cells, metrics, " ".join(str(node["why"]).split()))


def _named(node: Any) -> Any:
    """A tree whose names are all texts: YAML reads some as numbers."""
    if isinstance(node, Mapping):
        return {str(key): _named(child) for key, child in node.items()}
    return [_named(child) for child in node] if isinstance(node, list) else node


def _texts(where: str, what: str, value: Any) -> list[str]:
    texts = [value] if isinstance(value, str) else value or []
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ConfigError(f"{where}: {what} must be a list of texts such as [model.n_layers=2], got {value!r}")
    return texts


def _expectation(where: str, node: Mapping[str, Any], metric: str, cells: Mapping[str, Any]) -> Expectation:
    keys = set(node) - SHARED
    fits = [
        kind for kind, (must, may) in KINDS.items() if must <= keys <= must | may and (kind != "level" or keys & may)
    ]
    if not fits:
        raise ConfigError(
            f"{where}: {dict(node)} is no expectation; one has cell with at_least or at_most (or both), more with than "
            "(and by), or same with within"
        )
    named = node["same"] if fits[0] == "same" else [node[key] for key in ("cell", "more", "than") if key in node]
    if unknown := [cell for cell in named if cell not in cells]:
        raise ConfigError(f"{where}: {unknown[0]!r} is no cell; there are {', '.join(cells)}")
    low, high = {
        "level": (node.get("at_least"), node.get("at_most")),
        "more": (node.get("by", 0.0), None),
        "same": (None, node.get("within")),
    }[fits[0]]
    words = {key: node.get(key, "") for key in ("when", "says")}
    control = node.get("control", False)
    if not isinstance(control, bool) or (control and words["when"]):
        raise ConfigError(f"{where}: {dict(node)}: control is true or false, and a control has no `when`")
    return Expectation(fits[0], tuple(named), node.get("metric", metric), low, high, **words, control=control)
