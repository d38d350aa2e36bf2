"""demo=claims: what texts say about attention, and what to type to have it decided."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig

from minitf.demo.text import WIDTH, paragraph, width, wrapped
from minitf.errors import ConfigError
from minitf.hints import command

COMMANDS = {"study=": "ablate", "demo=": "demo", "+bug=": "train"}
INDENT, COMMAND_INDENT = " " * 6, " " * 8
VERDICTS = Path(__file__).with_name("verdicts.json")  # of the last run of all studies; there may be none


@dataclass(frozen=True)
class Claim:
    """One statement.

    Args:
        id: a letter and a number.
        section: its heading.
        says: the statement, true or not.
        by: what decides it, as in claims.yaml; empty: nothing does.
        found: what demos, tests and laws show, or why nothing decides it; "" where studies alone decide.
    """

    id: str
    section: str
    says: str
    by: Sequence[str]
    found: str


@cache
def all_claims() -> dict[str, Claim]:
    """The statements of claims.yaml, by their ids."""
    text = Path(__file__).with_name("claims.yaml").read_text(encoding="utf-8")
    return {
        name: Claim(name, section, node["says"], node["by"], node.get("found", ""))
        for section, nodes in yaml.safe_load(text).items()
        for name, node in nodes.items()
    }


def verdict(item: str, known: Mapping[str, Any]) -> list[str]:
    """What a study decided, in a line that may be wrapped; [] where nothing is known.

    Args:
        item: of `by`.
        known: content of verdicts.json, or {}.
    """
    found = known.get("studies", {}).get(item.removeprefix("study=")) if item.startswith("study=") else None
    if found is None:
        return []
    why = f": {found['why']}" if found["why"] else ""
    seeds = f"{found['seeds']} seed{'' if found['seeds'] == 1 else 's'}"
    told = f"-> {found['verdict']}{why} ({seeds}, {found['seconds']:.0f} s of CPU, {known['date']})"
    return wrapped(told, indent=COMMAND_INDENT)


def typed(item: str) -> str:
    """What a user types to have something decided, in two lines if it is too long for one.

    Args:
        item: of `by`.
    """
    name = next((name for start, name in COMMANDS.items() if item.startswith(start)), None)
    if item.startswith("tests/"):
        start, choices = "pytest", item
    elif name is not None:
        start, choices = command(name), item
    else:
        name, _, choices = item.partition(" ")
        start = command(name)
    one = f"{COMMAND_INDENT}{start} {choices}"
    return one if width(one) <= WIDTH else f"{COMMAND_INDENT}{start} \\\n{COMMAND_INDENT}  {choices}"


def claims(*, config: DictConfig) -> str:
    """Statements with the commands that decide them.

    Args:
        config: `id` is that of a statement, or the letter of several; None for all.

    Raises:
        ConfigError: there is no such statement.
    """
    chosen = _chosen(config.id)
    known = json.loads(VERDICTS.read_text(encoding="utf-8")) if VERDICTS.is_file() else {}
    head = (
        "What texts say about attention, true or not, and what decides it. A study prints its verdict with numbers; "
        "tests need minitf's own folder. C are doubtful statements, not false ones, and among E, T and A some are "
        "refuted, too. id=C shows a whole group, id=C4 one statement."
    )
    if known:
        head += (
            f" Below each study stands what it decided about its own claim, which it prints, on {known['date']} "
            f"({known['versions']})."
        )
    lines = [paragraph(head)]
    section = ""
    for claim in chosen:
        if claim.section != section:
            section = claim.section
            lines += ["", section]
        lines += ["", *_shown(claim, known)]
    return "\n".join(lines)


def _shown(claim: Claim, known: Mapping[str, Any]) -> list[str]:
    first, *more = wrapped(claim.says, indent=INDENT)
    lines = [f"{claim.id:<4}  {first.strip()}", *more]
    for item in claim.by:
        lines += [typed(item), *verdict(item, known)]
    return lines + (wrapped(f"-> {claim.found}", indent=INDENT) if claim.found else [])


def _chosen(name: str | None) -> list[Claim]:
    every = all_claims()
    if name is None:
        return list(every.values())
    asked = str(name).lower()
    chosen = [claim for claim in every.values() if asked in (claim.id.lower(), claim.id[0].lower())]
    if not chosen:
        near = difflib.get_close_matches(asked.upper(), every, n=3, cutoff=0.5)
        hint = f"; nearest: {', '.join(near)}" if near else ""
        raise ConfigError(f"id={name}: there is no such statement{hint}. demo=claims lists all")
    return chosen
