"""What a command line asks for, and which wishes do not go together; nothing heavy is needed to tell."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from minitf.errors import ConfigError

# values that ask for nothing
OFF = {
    "beams": 1,
    "n_best": 1,
    "length_penalty": 1,
    "repetition_penalty": 1,
    "min_new_tokens": 0,
    "no_repeat_ngram": None,
    "prefill_chunk": None,
    "steps": None,
    "compare": False,
    "compile": False,
    "interactive": False,
}
RULES = ("repetition_penalty", "no_repeat_ngram", "min_new_tokens")
SOURCES = ("prompt", "prompt_file", "prompts")
READS_LINES = "a loop reads its prompts from standard input: leave one of them out"
ONE_ROW = "it is for one prompt: give prompt=... or prompt_file=..."
DRAWS_NOTHING = "beam search draws nothing: leave it out, or write without beams"
# (wish, others, why it goes with none of them)
APART = [
    ("interactive", SOURCES, READS_LINES),
    ("interactive", ("compare",), "compare one prompt at a time: give prompt=..."),
    ("interactive", ("prompt_cache",), ONE_ROW),
    ("interactive", ("beams",), "a loop shows a text while it grows, and beam search has none before its end"),
    ("beams", ("sampler", "seed"), DRAWS_NOTHING),
    ("beams", ("draft",), "a draft serves a text that is written token by token: leave one of them out"),
    ("beams", ("stop_string",), "beam search ends at tokens only: stop=true is the end of a document"),
    ("beams", ("prompt_cache", "compare"), "only a text that is written token by token has it: write without beams"),
    ("draft", ("prompts",), ONE_ROW),
    ("draft", ("prompt_cache", "prefill_chunk", "compare"), "a draft needs caches of its own: leave one of them out"),
    ("draft", RULES, "rules would have to be asked about drafted tokens, too: leave one of them out"),
    ("prompt_cache", ("prompts", "compare"), ONE_ROW),
]
# an empty one would mean the folder one is in
PATHS = {
    "prompt_file": "a file",
    "prompts": "a file with a prompt on each line",
    "prompt_cache": "a file",
    "draft": "the folder of a run",
}
NEEDS = {"n_best": "beams", "length_penalty": "beams", "n_draft": "draft"}
EXAMPLES = {"beams": "beams=4", "draft": "draft=FOLDER"}


def asked_for(cfg: DictConfig, raw: Mapping[str, Any], overrides: Sequence[str]) -> set[str]:
    """Names of all that was asked for: what was typed, unless it asks for nothing.

    Args:
        cfg: as in configs/generate.yaml.
        raw: what was taken off the command line as typed.
        overrides: the rest of it; `sampler.top_k=3` counts as sampler.
    """
    typed = {override.lstrip("+~").partition("=")[0].partition(".")[0] for override in overrides}
    return {key for key in typed if not (key in OFF and OFF[key] == cfg.get(key))} | set(raw)


def check_wishes(cfg: DictConfig, raw: Mapping[str, Any], asked: set[str]) -> None:
    """Refuse, before anything heavy is imported, what cannot be had together, and numbers out of range.

    Args:
        cfg, raw: as for `asked_for`.
        asked: what it gave.

    Raises:
        ConfigError: names the two, or the number.
    """
    for key in PATHS:
        if raw.get(key) == "":
            raise ConfigError(
                f"{key}= is empty, which is no path: give {PATHS[key]}, or leave {key} out, which is null"
            )
    if not raw.get("run"):
        raise ConfigError("say which model is to write: run=FOLDER, the folder that training printed")
    if len(given := [key for key in SOURCES if key in raw]) > 1:
        raise ConfigError(f"{' and '.join(given)} were both given: choose one of them")
    for wish, others, why in APART:
        if wish in asked and (found := [other for other in others if other in asked]):
            raise ConfigError(f"{wish} and {found[0]} do not go together: {why}")
    for wish, other in NEEDS.items():
        if wish in asked and other not in asked:
            raise ConfigError(f"{wish} is a part of {EXAMPLES[other]}: give that, too, or leave it out")
    if not cfg.cache and (found := sorted({"compare", "compile", "prompt_cache", "prefill_chunk"} & asked)):
        raise ConfigError(f"cache=none and {found[0]} do not go together: choose a cache, such as cache=dynamic")
    _check_numbers(cfg)


def _check_numbers(cfg: DictConfig) -> None:
    if cfg.format not in ("text", "jsonl"):
        raise ConfigError(f"format must be text or jsonl, got {cfg.format!r}")
    for key in ("max_new_tokens", "beams", "n_best", "n_draft"):
        if cfg[key] < 1:
            raise ConfigError(f"{key} must be at least 1, got {cfg[key]}")
    for key in ("prefill_chunk", "steps"):
        value = cfg[key]
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ConfigError(f"{key} must be a whole number of at least 1, or null, got {value!r}")
    if cfg.n_best > cfg.beams:
        raise ConfigError(f"beams={cfg.beams} cannot give n_best={cfg.n_best} hypotheses: raise beams, or lower n_best")
    if cfg.min_new_tokens > cfg.max_new_tokens:
        raise ConfigError(
            f"min_new_tokens ({cfg.min_new_tokens}) is more than max_new_tokens ({cfg.max_new_tokens}): change one"
        )
    if cfg.min_new_tokens > 0 and not cfg.stop:
        raise ConfigError(
            "min_new_tokens puts off the end of a document, and stop=false knows none: leave one of them out"
        )


def check_allow(allow: Sequence[str]) -> None:
    """Refuse names of packages that would trust too much, or of which there is none.

    Args:
        allow: names of packages.

    Raises:
        ConfigError: names the package.
    """
    from minitf import runs

    for name in runs.check_allow(list(allow)):
        try:
            there = find_spec(name) is not None
        except (ImportError, ValueError):  # the package that it lies in is none, or cannot be imported
            there = False
        if not there:
            raise ConfigError(f"allow: there is no package {name!r} here: check its spelling, or install it")


def check_prompt_cache(path: Path) -> None:
    """Refuse, before anything is read, a file that could be neither read nor written; nothing is made.

    Args:
        path: of the file, or where it is to be.

    Raises:
        ConfigError: says why.
    """
    way = "give prompt_cache=FILE, a file that is or can be written there"
    if path.exists():
        if not path.is_file():
            raise ConfigError(f"prompt_cache={path} is no file: {way}")
        if not os.access(path, os.R_OK):
            raise ConfigError(f"prompt_cache={path} may not be read: {way}")
    elif not path.parent.is_dir():
        raise ConfigError(f"prompt_cache={path} lies in {path.parent}, which is no folder: make it first, or {way}")
    elif not os.access(path.parent, os.W_OK | os.X_OK):
        raise ConfigError(f"prompt_cache={path} cannot be written: its folder may not be written to; {way}")


def check_kind(asked: set[str], refused: Mapping[str, str], what: str) -> None:
    """Refuse what a kind of model cannot do.

    Args:
        asked: what `asked_for` gave.
        refused: names of wishes, and why.
        what: the kind, for the message.

    Raises:
        ConfigError: names the first of them.
    """
    for wish, why in refused.items():
        if wish in asked:
            raise ConfigError(f"{wish} is not for {what}: {why}")
