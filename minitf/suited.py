"""What goes with a choice where the user does not say: a task and a model with data, a task with a model, and so on."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from minitf.config import config_dir
from minitf.errors import ConfigError

TOKENIZER = ("data.tokenizer", "data/tokenizer")  # of text


def suited(typed: Sequence[str]) -> list[str]:
    """Overrides that go with those that were typed, as configs/suited.yaml lists them.

    What was typed wins, and so does an experiment that was: nothing is added for a group or key that one of them
    names. The data of a model goes with it where neither data nor a tokenizer was typed, and no other task than that
    data's. The row of several choices goes with them where each of them was typed or added, and no sweep is over them.

    Args:
        typed: the command line.

    Raises:
        ConfigError: a sweep over options that go with different ones.
    """
    table = yaml.safe_load((config_dir() / "suited.yaml").read_text(encoding="utf-8"))
    said = {key.lstrip("+~"): value for key, _, value in (argument.partition("=") for argument in typed)}
    said = _of_experiment(said.get("experiment", "")) | said
    added: list[str] = []
    # data is asked again: a task may have brought it
    stages = [("data", ""), ("model", ""), ("task", ""), ("data", "")]
    if not any(key == "data" or key.startswith(TOKENIZER) for key in said):
        stages = [("model", "data="), *stages]
    for group, part in stages:
        chosen = [a.partition("=")[2] for a in (*typed, *added) if a.partition("=")[0] == group]
        options = [option.strip() for option in _inside(chosen[-1]).split(",")] if chosen else []
        rows = [table.get(f"{group}={option}", []) for option in options]
        wanted = [[o for o in _without(row, said) if o.startswith(part)] for row in rows]
        if group == "model":  # a task that was typed has data of its own
            wanted = [[o for o in row if part or not o.startswith("data=")] for row in wanted]
            wanted = [[o for o in row if not part or _fits_task(table[o], said)] for row in wanted]
        if any(other != wanted[0] for other in wanted):
            needs = "; ".join(f"{o} with {' '.join(w) or 'the usual'}" for o, w in zip(options, wanted, strict=True))
            raise ConfigError(f"{group}={','.join(options)} cannot be one sweep, they go with different data: {needs}")
        added += wanted[0] if wanted else []
        said |= {key: value for key, _, value in (override.partition("=") for override in added)}
    for choices, row in table.items():
        several = [choice.partition("=") for choice in choices.split()]
        if len(several) > 1 and all(said.get(group) == option for group, _, option in several):
            added += _without(row, said)
    return added


def _fits_task(row: list[str], said: dict[str, str]) -> bool:
    """Whether data that brings a row is for the task that was typed, if one was."""
    return "task" not in said or f"task={said['task']}" in row


def _of_experiment(name: str) -> dict[str, str]:
    """Groups and keys that a file of configs/experiment sets."""
    path = config_dir() / "experiment" / f"{name}.yaml"
    if not path.is_file():
        return {}
    nodes = [("", yaml.safe_load(path.read_text(encoding="utf-8")) or {})]
    found = {}
    while nodes:
        prefix, node = nodes.pop()
        for key, value in node.items():
            if key == "defaults":
                options = [pair for entry in value if isinstance(entry, dict) for pair in entry.items()]
                found |= {group.removeprefix("override ").removeprefix("/"): str(name) for group, name in options}
            elif isinstance(value, dict):
                nodes.append((f"{prefix}{key}.", value))
            else:
                found[f"{prefix}{key}"] = str(value)
    return found


def _inside(value: str) -> str:
    """The options of a sweep, also as choice(a,b)."""
    return value.removeprefix("choice(").removesuffix(")") if value.startswith("choice(") else value


def _without(overrides: list[str], said: dict[str, str]) -> list[str]:
    return [override for override in overrides if override.partition("=")[0] not in said and _has(override, said)]


def _has(override: str, said: dict[str, str]) -> bool:
    """Whether what was typed has the key of an override: synthetic rows have no tokenizer."""
    if not (override.startswith("data.tokenizer.") and "data" in said):
        return True
    option = config_dir() / "data" / f"{said['data']}.yaml"
    return option.is_file() and "tokenizer:" in option.read_text(encoding="utf-8")
