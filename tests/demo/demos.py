"""Run a demo inside the test."""

import re
from functools import cache

from omegaconf import DictConfig, OmegaConf
from parts import node

from minitf.config import build, compose


@cache
def composed(*overrides: str) -> DictConfig:
    """The config of a command line; composing takes longer than most demos."""
    return compose("demo", overrides)


def text_of(*overrides: str) -> str:
    """What a command line prints."""
    cfg = composed(*overrides).copy()
    return build(cfg.demo)(config=cfg)


def small(preset: str, *overrides: str) -> DictConfig:
    """The config of a demo with a small model."""
    data = {"vocab_size": 65, "src_vocab_size": 65, "n_classes": 3, "seq_len": 32}
    return OmegaConf.create({"seed": 0, "data": data, "model": node(preset, *overrides)})


def table_of(text: str) -> dict[str, list[str]]:
    """The lines of tables: first cell -> the others."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    return {cells[0]: cells[1:] for cells in lines if len(cells) > 1}
