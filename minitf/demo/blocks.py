"""demo=blocks: every part of every group, with what selects it, what it is and where it comes from."""

from __future__ import annotations

import difflib
from collections import Counter

from omegaconf import DictConfig

from minitf.config import config_groups
from minitf.demo.options import Option, group_line, options
from minitf.demo.text import WIDTH, pad, paragraph, wrapped
from minitf.errors import ConfigError

OTHER_GROUPS = ("task", "cache")


def blocks(*, group: str | None, config: DictConfig) -> str:
    """The navigator, made from the configs and the docstrings.

    Args:
        group: show only groups whose name ends with this, for example "mask" or "model/attention/score"; None: all.
        config: unused.

    Raises:
        ConfigError: there is no such group.
    """
    names = shown_groups()
    if group is not None:
        end = str(group).strip("/")
        wanted = [name for name in names if f"/{name}/".endswith(f"/{end}/")]
        if not wanted:
            last = {name.rsplit("/", 1)[-1] for name in names}
            near = difflib.get_close_matches(end, sorted(last), n=3, cutoff=0.5) or sorted(last)
            raise ConfigError(f"demo.group={group} is none of the groups; nearest: {', '.join(near)}")
        names = wanted
    listed = {name: options(name) for name in shown_groups()}
    users = Counter(id(option.target) for found in listed.values() for option in found)

    def line(group: str, option: Option) -> str:
        # an assembled model is told by its own file as well: its class says nothing about what it is made of
        return option.line(shared=group == "model" or users[id(option.target)] > 1)

    parts = [_section(name, [(option, line(name, option)) for option in listed[name]]) for name in names]
    n = sum(len(listed[name]) for name in names)
    head = f"{n} parts in {len(names)} groups. The left column is what you type behind scripts/train.py or demo.py."
    return "\n\n".join([head, *parts])


def shown_groups() -> list[str]:
    """Every group that has parts: the assembled models, what they are made of, tasks and caches."""
    return [
        name
        for name in config_groups()
        if (name == "model" or name.startswith("model/") or name in OTHER_GROUPS) and options(name)
    ]


def _section(name: str, found: list[tuple[Option, str]]) -> str:
    column = max(len(option.override) for option, _ in found) + 4
    lines = [paragraph(f"{name}/ {group_line(name)}")]
    for option, told in found:
        text = wrapped(told, WIDTH - column)
        if option.source:
            text += wrapped(f"[{option.source}]", WIDTH - column)
        labels = [f"  {option.override}", *[""] * len(text)]
        lines += [pad(label, column) + part for label, part in zip(labels, text, strict=False)]
    return "\n".join(lines)
