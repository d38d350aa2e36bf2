"""What goes with a choice where the user does not say: a task and a model with data, a task with a model, and so on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import yaml

from minitf.config import config_dir
from minitf.errors import ConfigError


def suited(typed: Sequence[str]) -> list[str]:
    """Overrides that go with those that were typed, as configs/suited.yaml lists them.

    What was typed wins: nothing is added for a group or key that the command line, or an experiment on it, names.

    Args:
        typed: the command line.

    Raises:
        ConfigError: a sweep over options that go with different ones.
    """
    table = yaml.safe_load((config_dir() / "suited.yaml").read_text(encoding="utf-8"))
    said = {key.lstrip("+~"): value for key, _, value in (argument.partition("=") for argument in typed)}
    said |= dict.fromkeys(_of_experiment(said.get("experiment", "")))
    added: list[str] = []
    # data is asked again: a task may have brought it
    for group in ("data", "model", "task", "data"):
        chosen = [a.partition("=")[2] for a in (*typed, *added) if a.partition("=")[0] == group]
        options = [option.strip() for option in _inside(chosen[-1]).split(",")] if chosen else []
        wanted = [_without(table.get(f"{group}={option}", []), said) for option in options]
        if any(other != wanted[0] for other in wanted):
            needs = "; ".join(f"{o} with {' '.join(w) or 'the usual'}" for o, w in zip(options, wanted, strict=True))
            raise ConfigError(f"{group}={','.join(options)} cannot be one sweep, they go with different data: {needs}")
        added += wanted[0] if wanted else []
        said |= {key: value for key, _, value in (override.partition("=") for override in added)}
    return added


def _of_experiment(name: str) -> list[str]:
    """The keys with a dot, such as trainer.max_steps, that an experiment of minitf sets."""
    path = config_dir() / "experiment" / f"{name}.yaml"
    return list(_keys(yaml.safe_load(path.read_text(encoding="utf-8")))) if name and path.is_file() else []


def _keys(tree: dict, above: str = "") -> Iterator[str]:
    for key, value in tree.items():
        if key != "defaults":
            yield from _keys(value, f"{above}{key}.") if isinstance(value, dict) else [f"{above}{key}"]


def _inside(value: str) -> str:
    """The options of a sweep, also as choice(a,b)."""
    return value.removeprefix("choice(").removesuffix(")") if value.startswith("choice(") else value


def _without(overrides: list[str], said: dict[str, str]) -> list[str]:
    return [override for override in overrides if override.partition("=")[0] not in said and _has(override, said)]


def _has(override: str, said: dict[str, str]) -> bool:
    """Whether what was typed has the key of an override: synthetic rows have no tokenizer, other models other parts."""
    if override.startswith("model."):
        return "model" not in said
    if not (override.startswith("data.tokenizer.") and "data" in said):
        return True
    option = config_dir() / "data" / f"{said['data']}.yaml"
    return option.is_file() and "tokenizer:" in option.read_text(encoding="utf-8")
