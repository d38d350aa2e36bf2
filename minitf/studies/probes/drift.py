"""How much the patterns of heads still change while a model trains, and whether they are the same for another seed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from minitf.analysis.capture import capture
from minitf.analysis.matching import best_permutation, pattern_similarity
from minitf.config import check, compose
from minitf.studies.loop import Subject, prepare, train
from minitf.studies.measures.sample import joined

ROWS = 64  # of the validation split, the same ones for every seed


def drift(seed: int, overrides: Sequence[str], parts: int = 5, more: Sequence[str] = ()) -> dict[str, float]:
    """Train two models of one layer, of this seed and of another, and compare the patterns of their heads.

    Args:
        seed: of the first run; the other one has this seed plus 1000.
        overrides: of configs/train.yaml.
        parts: of how many equal parts of the run the first and the last are looked at.
        more: further overrides.

    Returns:
        "early" and "late": mean total variation distance between the patterns of a head at both ends of the first and
        of the last part; "same_number": that between heads of the same number of the two runs at the end; "matched":
        the same after the best permutation of heads. 0 to 1 each.
    """
    patterns = _patterns(seed, overrides, parts, more)
    other = _patterns(seed + 1000, overrides, parts, more)[-1]
    similar = pattern_similarity(patterns[-1], other)
    return {
        "early": _distance(patterns[0], patterns[1]),
        "late": _distance(patterns[-2], patterns[-1]),
        "same_number": 1 - float(similar.diagonal().mean()),
        "matched": 1 - best_permutation(similar).similarity,
    }


def _patterns(seed: int, overrides: Sequence[str], parts: int, more: Sequence[str]) -> list[Tensor]:
    """(B,H,T,S) at the beginning and after each part."""
    overrides = [*overrides, *more, f"seed={seed}"]
    cfg = compose("train", overrides)
    check(cfg, "train", overrides)
    subject, n_steps = prepare(cfg, paired=True), cfg.trainer.max_steps
    found: list[Tensor] = []

    def look(subject: Subject) -> None:
        found.append(torch.cat([one.weights for one in capture(subject.model, joined(subject, ROWS))]))

    train(subject, at={round(n_steps * i / parts) for i in range(parts + 1)}, look=look)
    return found


def _distance(a: Tensor, b: Tensor) -> float:
    return 1 - float(pattern_similarity(a, b).diagonal().mean())
