"""What a study file may say: each key is checked, since what cannot mean anything must not be judged."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

from minitf.errors import ConfigError
from minitf.studies.form_values import (
    BETWEEN,
    a_count,
    a_flag,
    a_list,
    a_mapping,
    a_number,
    a_text,
    as_name,
    listed,
    overrides,
    own_overrides,
    quotes_needed,
    texts,
)

BUDGETS = ("steps", "parameters", "flops", "seconds")
KINDS = {  # an expectation has the keys of one kind, and perhaps those that all may have
    "level": ({"cell"}, {"at_least", "at_most"}),
    "more": ({"more", "than"}, {"by"}),
    "same": ({"same", "within"}, set()),
}
SHARED = {"metric", "when", "says", "control"}
NEEDED = ("question", "claim", "source", "metric")
BUILT = ("cells", "factors", "expect", "figures", "differences")  # what is more than checked


def checked(where: str, node: Any) -> dict[str, Any]:
    """What a study says, by the names of its fields; of expectations and differences, too.

    Args:
        where: the file, for messages.
        node: its content.

    Raises:
        ConfigError: a key that is unknown, missing or twice there, or a value that cannot be: what it must be.
    """
    if not isinstance(node, Mapping):
        raise ConfigError(f"{where} must be a mapping of {', '.join(NEEDED)}, cells and more, got {node!r:.100}")
    node = _named(where, node)
    if unknown := sorted(set(node) - {*CHECKS, *BUILT}):
        raise ConfigError(f"{where}: {unknown[0]} is not known; there are {', '.join(sorted({*CHECKS, *BUILT}))}")
    if missing := [key for key in NEEDED if key not in node]:
        raise ConfigError(f"{where} lacks {missing[0]}")
    found = {key: check(f"{where}: {key}", node[key]) for key, check in CHECKS.items() if key in node}
    cells = found["cells"] = _cells(where, node)
    found["factors"] = _factors(node.get("factors", {}))
    expect = a_list(f"{where}: expect", node.get("expect", []), "expectations such as {cell: NAME, at_least: 0.9}")
    found["expect"] = [_expectation(where, e, node["metric"], cells) for e in expect]
    figures = found["figures"] = _figures(where, node.get("figures", {}), cells)
    differences = a_list(
        f"{where}: differences",
        node.get("differences", []),
        "mappings such as {cells: [NAME], metrics: [loss], why: TEXT}",
    )
    found["differences"] = [_difference(where, of, figures) for of in differences]
    return found


def _named(where: str, node: Any) -> Any:
    """A tree whose names are all texts: YAML reads some as numbers, and others so that they would be lost."""
    if isinstance(node, Mapping):
        names = [as_name(key) for key in node]
        if odd := [name for name in names if not isinstance(name, str)]:
            raise ConfigError(f"{where} has the name {odd[0]!r}. {quotes_needed(odd[0]) or 'It must be a text'}")
        if double := [name for name in names if names.count(name) > 1]:
            raise ConfigError(
                f"{where}: {double[0]!r} is there {len(double)} times among {list(node)}; it must be once"
            )
        return {name: _named(f"{where}: {name}", child) for name, child in zip(names, node.values(), strict=True)}
    return [_named(where, child) for child in node] if isinstance(node, list) else node


def _budget(what: str, value: Any) -> str:
    if value not in BUDGETS:
        raise ConfigError(f"{what} ({value!r}) must be one of {', '.join(BUDGETS)}")
    return value


def _called(what: str, value: Any) -> Mapping[str, Any]:
    """A node with the name of a function."""
    node = a_mapping(what, value, "such as {_target_: package.function}")
    if not isinstance(node.get("_target_"), str) or not node["_target_"].strip():
        raise ConfigError(f"{what} ({dict(node)!r:.100}) must have a text _target_, the name of a function")
    return node


def _run(what: str, value: Any) -> Mapping[str, Any]:
    if "seed" in _called(what, value):
        raise ConfigError(f"{what} says seed, but the seeds of a study are counted: give `seeds: 3`, how many")
    return value


def _measures(what: str, value: Any) -> Mapping[str, Any]:
    for name, node in a_mapping(what, value, "name -> {_target_: package.function}").items():
        at = _called(f"{what}.{name}", node).get("at", "end")
        steps = isinstance(at, list) and all(type(step) is int and step >= 0 for step in at) and at
        if not steps and at not in ("end", "start"):
            raise ConfigError(f"{what}.{name}: at ({at!r}) must be end, start, or a list of steps")
    return value


CHECKS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(NEEDED, a_text),
    "covers": texts,
    "base": overrides,
    "smoke": overrides,
    "seeds": a_count,
    "budget": _budget,
    "takes_long": a_flag,
    "run": _run,
    "measures": _measures,
}


def _cells(where: str, node: Mapping[str, Any]) -> dict[str, list[str]]:
    cells = {
        a_text(f"{where}: cells, a name", cell): own_overrides(f"{where}: cells of {cell!r}", of)
        for cell, of in a_mapping(f"{where}: cells", node.get("cells", {}), "name -> overrides").items()
    }
    factors = []
    for factor, levels in a_mapping(f"{where}: factors", node.get("factors", {}), "name -> level -> overrides").items():
        if not a_mapping(f"{where}: factors.{factor}", levels, "level -> overrides"):
            raise ConfigError(f"{where}: factors.{factor} ({levels!r}) must have at least one level")
        factors.append([(level, own_overrides(f"{where}: factors of {level!r}", of)) for level, of in levels.items()])
    for levels in itertools.product(*factors) if factors else ():
        cell = BETWEEN.join(level for level, _ in levels)
        if cell in cells:
            raise ConfigError(f"{where}: cells or factors give two cells the name {cell!r}: call one otherwise")
        cells[cell] = [override for _, overrides in levels for override in overrides]
    if not cells:
        raise ConfigError(f"{where} lacks cells")
    return cells


def _factors(node: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """The factor of each level in the name of a cell; a level such as "own V, W_Q" counts as two, with numbers."""
    found: list[str] = []
    for factor, levels in node.items():
        n = len(next(iter(levels)).split(BETWEEN))
        found += [factor] if n == 1 else [f"{factor} {i}" for i in range(1, n + 1)]
    return tuple(found)


def _expectation(where: str, node: Any, metric: str, cells: Mapping[str, Any]) -> dict[str, Any]:
    keys = set(node) - SHARED if isinstance(node, Mapping) else set()
    fits = [
        kind for kind, (must, may) in KINDS.items() if must <= keys <= must | may and (kind != "level" or keys & may)
    ]
    if not fits:
        raise ConfigError(
            f"{where}: {node!r} is no expectation; one has cell with at_least or at_most (or both), more with than "
            "(and by), or same with within"
        )
    kind, what = fits[0], f"{where}: {node!r}"
    named = node["same"] if kind == "same" else [node[key] for key in ("cell", "more", "than") if key in node]
    named = as_name(named)
    if kind == "same" and not (isinstance(named, list) and len(named) == 2):
        raise ConfigError(f"{what}: same ({named!r}) must be a list of two cells; there are {listed(cells)}")
    if unknown := [cell for cell in named if not isinstance(cell, str) or cell not in cells]:
        more = f". {quotes}" if (quotes := quotes_needed(unknown[0])) else ""
        raise ConfigError(f"{what}: {unknown[0]!r} is no cell; there are {listed(cells)}{more}")
    if len(set(named)) < len(named):
        raise ConfigError(f"{what}: {named[0]!r} is compared with itself; it must be two of {listed(cells)}")
    bounds = {"at_least", "at_most", "by", "within"} & keys
    of = {key: a_number(f"{what}: {key}", node[key], 0 if key == "within" else -math.inf) for key in sorted(bounds)}
    if kind == "level" and of.get("at_least", -math.inf) > of.get("at_most", math.inf):
        raise ConfigError(f"{what}: at_least ({of['at_least']}) must not be above at_most ({of['at_most']})")
    low, high = {
        "level": (of.get("at_least"), of.get("at_most")),
        "more": (of.get("by", 0.0), None),
        "same": (None, of.get("within")),
    }[kind]
    words = {key: node.get(key, "") for key in ("when", "says")}
    if odd := [key for key, word in words.items() if not isinstance(word, str)]:
        raise ConfigError(f"{what}: {odd[0]} ({words[odd[0]]!r}) must be a text")
    control = node.get("control", False)
    if not isinstance(control, bool) or (control and words["when"]):
        raise ConfigError(f"{what}: control is true or false, and a control has no `when`")
    metric = a_text(f"{what}: metric", node.get("metric", metric))
    return {
        "kind": kind,
        "cells": tuple(named),
        "metric": metric,
        "low": low,
        "high": high,
        **words,
        "control": control,
    }


def _figures(where: str, node: Any, cells: Mapping[str, Any]) -> dict[str, dict[str, tuple[float, float]]]:
    of = "cell -> metric -> [lowest, highest]"
    figures: dict[str, dict[str, tuple[float, float]]] = {}
    for cell, metrics in a_mapping(f"{where}: figures", node, of).items():
        what = f"{where}: figures of {cell!r}"
        if cell not in cells:
            raise ConfigError(f"{what}, which is no cell; there are {listed(cells)}")
        figures[cell] = {}
        for metric, spread in a_mapping(what, metrics, "metric -> [lowest, highest]").items():
            if not isinstance(spread, list | tuple) or len(spread) != 2:
                raise ConfigError(f"{what}: {metric} ({spread!r}) must be two numbers, [lowest, highest]")
            low, high = (float(a_number(f"{what}: {metric}", value)) for value in spread)
            if low > high:
                raise ConfigError(f"{what}: {metric} ({spread!r}) must have the lowest number first")
            figures[cell][metric] = low, high
    return figures


def _difference(where: str, node: Any, figures: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    if not isinstance(node, Mapping) or set(node) != {"cells", "metrics", "why"}:
        raise ConfigError(f"{where}: differences are lists of cells, metrics and why, got {node!r}")
    cells, metrics = (tuple(texts(f"{where}: differences: {key}", as_name(node[key]))) for key in ("cells", "metrics"))
    if not (cells and metrics):
        raise ConfigError(f"{where}: differences ({node!r}) must name at least one cell and one metric")
    if unknown := [cell for cell in cells if not set(metrics) & set(figures.get(cell, ()))]:
        raise ConfigError(f"{where}: differences speak of {unknown[0]!r}, which has no figure of {', '.join(metrics)}")
    why = " ".join(a_text(f"{where}: differences: why", node["why"]).split())
    return {"cells": cells, "metrics": metrics, "why": why}
