"""Run a demo inside the test."""

import re

from minitf.config import build, check, compose


def text_of(*overrides: str) -> str:
    """What a command line prints."""
    cfg = compose("demo", overrides)
    check(cfg, "demo", overrides)
    return build(cfg.demo)(config=cfg)


def table_of(text: str) -> dict[str, list[str]]:
    """The lines of tables: first cell -> the others."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    return {cells[0]: cells[1:] for cells in lines if len(cells) > 1}
