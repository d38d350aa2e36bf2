"""What the metrics of studies mean: metrics.yaml, read."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import yaml

START = "start."


def meaning(metric: str, study: str = "") -> str:
    """One line about a metric; "" of one that is not known.

    Args:
        metric: as a study names it; "start.X" is X before training.
        study: whose metric it is, for the few names by which one study means something else.
    """
    told = entry(metric, study)[1]
    return f"before training: {told}" if told and metric.startswith(START) else told


def entry(metric: str, study: str = "") -> tuple[str, str]:
    """The key of metrics.yaml that fits a metric, and what it says; two empty texts where none does.

    Args:
        metric, study: as for `meaning`.
    """
    everywhere, of_study = known()
    name = metric.removeprefix(START)
    for group in (of_study.get(study, {}), everywhere):
        for key, told in group.items():
            if fnmatchcase(name, key):
                return key, told
    return "", ""


@cache
def known() -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Meanings by key, and study -> its own; of one group the keys without a pattern come first."""
    text = Path(__file__).with_name("metrics.yaml").read_text(encoding="utf-8")
    node = yaml.safe_load(text)
    everywhere, *own = (_plain_first(group) for group in (node["metrics"], *node["studies"].values()))
    return everywhere, dict(zip(node["studies"], own, strict=True))


def _plain_first(group: dict[str, str]) -> dict[str, str]:
    return dict(sorted(group.items(), key=lambda item: any(sign in item[0] for sign in "*?[")))
