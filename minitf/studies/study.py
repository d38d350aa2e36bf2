"""What a study is: a question, cells that differ in named overrides, seeds, and what is expected, in numbers."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from omegaconf import OmegaConf

from minitf.config import compose, group_options
from minitf.errors import ConfigError
from minitf.studies.form import checked
from minitf.studies.form_values import as_name, listed, override_key

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
        factors: what each level in the name of a cell is a level of, in their order; (): the levels say it themselves.
        under: overrides after those of every cell: the same question in another setting.
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
    factors: Sequence[str] = ()
    under: Sequence[str] = ()

    @property
    def file(self) -> str:
        """The name of its file; `name` says in which setting, too."""
        return self.name.removesuffix(_in_words(self.under))

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
        typed = [*self.base, *self.cells[cell], *self.under, *(more if smoke else ())]
        return list({override_key(override): override for override in typed}.values())

    def with_setting(self, overrides: Sequence[str]) -> Study:
        """The same study with overrides after those of every cell, under a name of its own.

        Reasons why figures differ from those found before were found without them, and are left out. Of several cells
        none may set what is set here, or they would no longer differ; of one that is chosen alone it may be set anew.

        Args:
            overrides: of configs/train.yaml, or of the arguments of `run`.

        Raises:
            ConfigError: they set what the cells differ in, which would then be the same cell.
        """
        for override in overrides:
            key = override_key(override)
            own = {cell: [o for o in of if _covers(key, override_key(o))] for cell, of in self.cells.items()}
            if len({tuple(sorted(of)) for of in own.values()}) > 1:
                cell, (first, *_) = next((cell, of) for cell, of in own.items() if of)
                raise ConfigError(
                    f"with= sets {key}, which is what the cells of study={self.name} differ in ({cell!r} has {first}): "
                    "leave it away, or type cells of your own with over=..."
                )
        return replace(self, name=self.name + _in_words(overrides), under=tuple(overrides), differences=())

    def only(self, cells: Sequence[str]) -> Study:
        """The study of some cells, with the expectations that speak of no other.

        Args:
            cells: names; in which order does not matter. A number stands for its text, as it does in a file.

        Raises:
            ConfigError: one is not there.
        """
        cells = as_name(list(cells))
        if unknown := [cell for cell in cells if cell not in self.cells]:
            quoted = self.reference.replace('"', '\\"')  # Hydra reads a name with commas in quotes only
            raise ConfigError(
                f"study={self.name} has no cell {unknown[0]!r}; there are {listed(self.cells)}; "
                "one is typed so: " + shlex.quote(f'cells=["{quoted}"]')
            )
        return replace(
            self,
            cells={cell: of for cell, of in self.cells.items() if cell in cells},
            expect=tuple(e for e in self.expect if set(e.cells) <= set(cells)),
            figures={cell: of for cell, of in self.figures.items() if cell in cells},
            left_out=tuple(cell for cell in self.cells if cell not in cells),
        )


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
        ConfigError: an unknown or missing key, or a value that cannot mean anything.
    """
    found = checked(f"configs/study/{name}.yaml", node)
    expect = tuple(Expectation(**e) for e in found.pop("expect"))
    differences = tuple(Difference(**of) for of in found.pop("differences"))
    return Study(name=name, expect=expect, differences=differences, **found)


def _in_words(under: Sequence[str]) -> str:
    return f" with {' '.join(under)}" if under else ""


def _covers(key: str, own: str) -> bool:
    """Whether a key sets all that another one sets: "model.position" covers "model/position", and what is under it.

    An option of a group covers that of the same group alone: model=llama_tiny leaves model/position=rope as it is.
    """
    if "." not in key:
        return key == own
    whole, part = (of.partition("@")[0].replace("/", ".").removesuffix("._target_") + "." for of in (key, own))
    return part.startswith(whole)
