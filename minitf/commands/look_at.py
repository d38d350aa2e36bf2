"""The rows that heads are shown: those of the run, with gold where it can be had, or other data."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from minitf.config import build_data, check, compose, typed_values
from minitf.errors import ConfigError

if TYPE_CHECKING:
    from minitf.data.base import BaseData

GOLD = "data.gold=true"


def take_data() -> list[str]:
    """Take `data=NAME` and `data.KEY=VALUE` off the command line: they speak of the run's own config.

    Returns:
        what was taken, as typed.
    """
    taken = [a for a in sys.argv[1:] if a.lstrip("+").partition("=")[0].split(".")[0] == "data" and "=" in a]
    sys.argv[1:] = [a for a in sys.argv[1:] if a not in taken]
    return taken


def look_at(run_cfg: DictConfig, typed: Sequence[str], option: str | None) -> tuple[DictConfig, list[str]]:
    """The config of the data to look at, and what was added to it.

    Args:
        run_cfg: of the run.
        typed: from `take_data`.
        option: the run's own choice of data, from its record.

    Returns:
        a config with `data`; and GOLD where the source can say where answers stand and nobody said otherwise.

    Raises:
        ConfigError: what was typed cannot be.
    """
    name = next((a.partition("=")[2] for a in typed if a.startswith("data=")), None)
    if name is not None and name != option:
        overrides = [f"data={name}", f"seed={run_cfg.seed}", *(a for a in typed if a.startswith("data."))]
        cfg = compose("train", overrides)
        check(cfg, "train", overrides)
        return OmegaConf.create({"data": OmegaConf.to_container(cfg.data, resolve=True)}), []
    cfg = OmegaConf.create({"data": OmegaConf.to_container(run_cfg.data, resolve=True)})
    for key, value in typed_values([a for a in typed if not a.startswith("data=")]):
        if OmegaConf.select(cfg, key, default=MISSING) is MISSING:
            raise ConfigError(f"{key} is no setting of the run's data; there are {', '.join(_keys(cfg.data))}")
        OmegaConf.update(cfg, key, value)
    if any(a.startswith("data.gold=") for a in typed) or cfg.data.get("gold", True):
        return cfg, []
    if not getattr(build_data(cfg).source, "roles", ()):
        return cfg, []
    cfg.data.gold = True
    return cfg, [GOLD]


def prepare(cfg: DictConfig, run_cfg: DictConfig, tokenizer: Any) -> BaseData:
    """Prepare other data, and refuse what the model cannot read.

    Args:
        cfg: from `look_at`.
        run_cfg: of the run, with the facts of its data.
        tokenizer: of the run; None where its data was no text.

    Raises:
        ConfigError: more symbols or longer rows than the model knows.
        DataError: the data cannot be had.
    """
    data = build_data(cfg).prepare(lambda line: print(line, file=sys.stderr))
    own = getattr(data, "tokenizer", None)
    if own is not None and (tokenizer is None or own.content() != tokenizer.content()):
        raise ConfigError(
            f"{data.name} is read with a tokenizer of its own, whose ids mean something else to this run: take data "
            "whose ids are symbols, such as data=repeat, or text that this run was trained on"
        )
    for fact, value in data.facts.items():
        known = run_cfg.data.get(fact)
        if value is not None and known is None:
            raise ConfigError(
                f"{data.name} has {fact} {value}, and the run's data had none, so its model has no place for it: take "
                "data of the same kind, or the run's own"
            )
        if value is not None and value > known:
            raise ConfigError(
                f"{data.name} has {fact} {value}, the run knows {known}: give smaller numbers to data.task, "
                "or take the run's own data"
            )
    if run_cfg.data.get("seq_len") and data.seq_len > run_cfg.data.seq_len and "max_len" in run_cfg.model:
        raise ConfigError(
            f"rows of {data.seq_len} tokens are longer than those of the run ({run_cfg.data.seq_len}): "
            f"data.seq_len={run_cfg.data.seq_len}"
        )
    return data


MISSING = object()


def _keys(node: DictConfig, prefix: str = "data") -> list[str]:
    found = []
    for key, value in node.items():
        found += _keys(value, f"{prefix}.{key}") if isinstance(value, DictConfig) else [f"{prefix}.{key}"]
    return [key for key in found if not key.endswith("_target_")]
