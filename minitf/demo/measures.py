"""demo=measures: what a study file can name under `measures` and under `run`, read from the source."""

from __future__ import annotations

import difflib
import re

from omegaconf import DictConfig

from minitf.demo.source import Function, functions
from minitf.demo.text import wrapped
from minitf.errors import ConfigError

WIDTH = 100
COLUMN = 13
NUMBERS = "dict[str, float]"  # what tells them from their helpers
FOLDERS = {"studies/measures": "subject", "studies/probes": "seed"}  # and their first argument
HEADS = {
    "studies/measures": (
        "Measures look at the model that a cell trains. In a study: `measures: {ANY_NAME: {_target_: "
        "minitf.studies.measures.copying.rounds, at: [0, 100, 400]}}`; at: end, start (and the end) or steps; "
        "without `at`, at the end. Each cell also has loss, and accuracy, exact and bits_per_byte where they exist."
    ),
    "studies/probes": (
        "Probes compute a cell themselves, instead of its training. In a study: `run: {_target_: "
        "minitf.studies.probes.softmax.dilution}`, and in each cell overrides of its arguments, such as [n_keys=128]."
    ),
}


def measures(*, config: DictConfig) -> str:
    """Measures and probes with their arguments, metrics and needs.

    Args:
        config: `name` is the end of a dotted name, or a part of it, and shows all that is written of it; None: a few
            lines of each.

    Raises:
        ConfigError: nothing has such a name.
    """
    found = {folder: named(folder) for folder in FOLDERS}
    if config.name is not None:
        chosen = _chosen(str(config.name), [one for every in found.values() for one in every])
        return "\n\n".join("\n".join(_whole(one)) for one in chosen)
    lines = [*wrapped("What a file of configs/study can name. name=sinks.sink shows one in full.", WIDTH)]
    for folder, every in found.items():
        lines += ["", *wrapped(HEADS[folder], WIDTH)]
        for one in every:
            lines += ["", *_short(one)]
    return "\n".join(lines)


def named(folder: str) -> list[Function]:
    """The functions of a folder that a study file can name: they give numbers by name.

    Args:
        folder: of FOLDERS.
    """
    return [one for one in functions(folder) if one.returns == NUMBERS and next(iter(one.arguments)) == FOLDERS[folder]]


def metrics(function: Function) -> list[str]:
    """The names in quotes under Returns, or, without that, in what stands before the arguments.

    Args:
        function: measure or probe.
    """
    told = function.sections.get("Returns", function.sections[""])
    return list(dict.fromkeys(re.findall(r'"([A-Za-z0-9][\w.]*)"', told)))  # not "_low", the end of several


def reads(function: Function) -> str:
    """Of which model a measure is, and on which data a probe trains; "" where the docstring does not say it.

    Args:
        function: measure or probe.
    """
    data = " ".join(re.findall(r"data=\w+", function.sections[""])[:1])
    first = next(iter(function.arguments))
    if first == FOLDERS["studies/measures"]:
        return function.told_of(first).rstrip(".") or data
    if function.arguments.get("overrides", "") is None:
        return f"{data}, with its overrides" if data else "what its overrides choose"
    return "makes its own"


def _short(function: Function) -> list[str]:
    first, *given = function.arguments.items()
    rows = {
        "arguments": ", ".join(map(_argument, given)),
        "metrics": ", ".join(metrics(function)),
        "subject" if first[0] == "subject" else "data": reads(function),
    }
    lines = [function.target, *wrapped(function.line, WIDTH, indent="  ")]
    for label, told in rows.items():
        parts = wrapped(told, WIDTH - COLUMN)
        lines += [
            f"{start:{COLUMN}}{part}" for start, part in zip([f"  {label}", *[""] * len(parts)], parts, strict=False)
        ]
    return lines


def _whole(function: Function) -> list[str]:
    given = ", ".join(map(_argument, function.arguments.items()))
    lines = wrapped(f"{function.target}({given})", WIDTH)
    for head, told in function.sections.items():
        lines += ["", f"  {head}:"] if head else []
        indent = "    " if head else "  "
        for part in re.split(r"\n(?=\S)" if head == "Args" else r"\n\n", told.strip()):
            first, *more = wrapped(part, WIDTH - len(indent) - 2)
            lines += [] if head else [""]
            lines += [indent + first, *(indent + ("  " if head == "Args" else "") + line for line in more)]
    return lines


def _argument(item: tuple[str, str | None]) -> str:
    name, default = item
    return name if default is None else f"{name}={default}"


def _chosen(name: str, every: list[Function]) -> list[Function]:
    asked = name.strip(".")
    chosen = [one for one in every if f".{asked}." in f".{one.target}."]
    if not chosen:
        ends = [".".join(one.target.split(".")[-n:]) for one in every for n in (1, 2)]
        near = difflib.get_close_matches(asked, ends, n=3, cutoff=0.5)
        hint = f"; nearest: {', '.join(near)}" if near else ""
        raise ConfigError(f"name={name}: there is no such measure or probe{hint}. demo=measures lists all")
    return chosen
