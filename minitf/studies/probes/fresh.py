"""What a probe trains that looks at more than the end: a model from overrides."""

from __future__ import annotations

from collections.abc import Sequence

from minitf.config import check, compose
from minitf.studies.loop import Subject, prepare


def fresh(overrides: Sequence[str], seed: int) -> Subject:
    """A model and its data, untrained; weights are drawn by name, as in every cell.

    Args:
        overrides: of configs/train.yaml.
        seed: of the run.

    Raises:
        ConfigError, DataError: a choice that cannot work.
    """
    overrides = [*overrides, f"seed={seed}"]
    cfg = compose("train", overrides)
    check(cfg, "train", overrides)
    return prepare(cfg, paired=True)
