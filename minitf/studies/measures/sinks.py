"""Does attention rest on the first token, and what is that token worth?"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from minitf.analysis.capture import capture
from minitf.analysis.forward import Batch, losses
from minitf.analysis.heads.average import Average
from minitf.analysis.heads.measure import Measured, measure
from minitf.analysis.heads.patterns import row_mass
from minitf.analysis.heads.roles import gold_of
from minitf.analysis.heads.rows import counted
from minitf.cache.window import Window
from minitf.studies.loop import Subject
from minitf.studies.measures.sample import ROWS, sample

SCORES = ("sink", "sink_dormant", "sink_active", "value_ratio")


def sink(subject: Subject, rows: int = ROWS) -> dict[str, float]:
    """Does attention rest on the first token? Means over heads.

    Args:
        subject: its data has gold, which says where something is to be fetched.
        rows: of the validation split.

    Returns:
        "sink": mass on it; "sink_dormant" where nothing is to be fetched, "sink_active" where something is;
        "value_ratio": length of its value divided by that of others. "row_mass" and "self_mass" of dormant queries: all
        of their weight, and what they give to themselves. What no query can show is left out.
    """
    batches = sample(subject, rows)
    found = measure(subject.model, batches)
    means = {name: float(torch.cat([of.scores[name] for of in found.values()]).mean()) for name in SCORES}
    return {name: value for name, value in (means | _dormant(subject, batches)).items() if math.isfinite(value)}


def sink_of_induction(subject: Subject, rows: int = ROWS) -> dict[str, float]:
    """The scores of `sink` of one head: the one with the best prefix-matching score.

    Args:
        subject: its data has gold, which says where something is to be fetched.
        rows: of the validation split.

    Returns:
        "sink", "sink_dormant", "sink_active", "value_ratio" of that head, and its "prefix_matching".
    """
    found = measure(subject.model, sample(subject, rows)).values()
    of, head = max(((of, h) for of in found for h in range(len(of.scores["sink"]))), key=_prefix)
    return {name: float(of.scores[name][head]) for name in (*SCORES, "prefix_matching")}


def eviction(subject: Subject, window: int = 16, rows: int = ROWS) -> dict[str, float]:
    """Losses in nats, token by token with a cache of `window` tokens, at the places where it has lost the first one.

    Args:
        subject: a decoder.
        window: how many tokens the cache holds.
        rows: of the validation split.

    Returns:
        "loss_full": with all tokens; "loss_evicted": with the last `window`; "loss_kept": with the first one and
        the last `window` - 1; "jump": evicted minus kept; "left": kept minus full.
    """
    batches = sample(subject, rows)
    full = _late_loss(subject, batches, window)
    evicted = _late_loss(subject, batches, window, Window(window, exact=False))
    kept = _late_loss(subject, batches, window, Window(window - 1, n_sink=1, exact=False))
    losses_of = {"loss_full": full, "loss_evicted": evicted, "loss_kept": kept}
    return {**losses_of, "jump": evicted - kept, "left": kept - full}


def _prefix(head: tuple[Measured, int]) -> float:
    of, number = head
    return float(of.scores["prefix_matching"][number].nan_to_num(-1.0))


def _dormant(subject: Subject, batches: Sequence[Batch]) -> dict[str, float]:
    sums: dict[str, Average] = {}
    for batch in batches:
        has_work = torch.stack([(gold >= 0).any(-1) for gold in gold_of(batch).values()]).any(0)
        for found in capture(subject.model, batch):
            queries = counted(found.q_pos, found.visible) & ~has_work[found.rows]
            for name, weights in {"row_mass": found.weights, "self_mass": _own(found.weights)}.items():
                mass = row_mass(weights, queries)
                sums[name] = sums[name] + mass if name in sums else mass
    return {name: float(mass.value.mean()) for name, mass in sums.items()}


def _own(weights: Tensor) -> Tensor:
    return weights.diagonal(dim1=-2, dim2=-1)[..., None]


@torch.no_grad()
def _late_loss(subject: Subject, batches: Sequence[Batch], first: int, like: Window | None = None) -> float:
    """Mean loss of the answers from place `first` on, read at once, or token by token with caches."""
    model, total, n = subject.model, 0.0, 0
    for batch in batches:
        ids = batch["ids"]
        if like is None:
            logits = model(ids)
        else:
            caches = model.new_caches(lambda: Window(like.window, like.n_sink, exact=like.exact))
            logits = torch.stack([model.step(ids[:, t : t + 1], caches=caches) for t in range(ids.size(1))], 1)
        total += float(losses(model, batch, logits)[:, first:].double().sum())
        n += int((batch["targets"][:, first:] >= 0).sum())
    return total / n
