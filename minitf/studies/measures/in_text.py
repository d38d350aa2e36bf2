"""Heads of a model of text: those that copying and resting would need."""

from __future__ import annotations

import torch
from torch import Tensor

from minitf.analysis.capture import capture
from minitf.analysis.forward import IGNORED, Batch, evaluating, losses
from minitf.analysis.heads.average import Average
from minitf.analysis.heads.measure import measure
from minitf.analysis.heads.patterns import periodic_prefix_matching
from minitf.analysis.heads.rows import counted
from minitf.analysis.heads.sink import SINK
from minitf.analysis.sites import Site
from minitf.studies.loop import Subject
from minitf.studies.measures.sample import ROWS, joined


@torch.no_grad()
def heads(subject: Subject, rows: int = ROWS) -> dict[str, float]:
    """Does a model of text have previous-token heads, induction heads and sinks?

    Induction is asked about with a text that is said twice: half a row, and the same again.

    Args:
        subject: a decoder trained on text, in rows of one stretch each.
        rows: of the validation split.

    Returns:
        "previous_token", the largest previous-token score of any head; "prefix", the largest prefix-matching score in
        the second half of the text that is said twice, and "second_time", nats per token there minus those of the first
        time: below 0 if the model copies (Olsson et al. 2022); "first_token", the largest mean weight of any head on
        the first token, and "sinks", the share of pairs of a head and a row in which it is above 0.3 (Gu et al. 2024).
    """
    batch = joined(subject, rows)
    found = measure(subject.model, [batch]).values()
    twice, half = _twice(batch["ids"])
    with evaluating(subject.model):
        of_tokens = losses(subject.model, twice)
    again, at_first = of_tokens[:, half : 2 * half - 1].mean(), of_tokens[:, : half - 1].mean()
    return {
        "previous_token": max(float(of.scores["previous_token"].max()) for of in found),
        "prefix": _prefix(subject, twice, half),
        "second_time": float(again - at_first),
        "first_token": max(float(of.scores["sink"].max()) for of in found),
        "sinks": _sinks(subject, batch),
    }


def _twice(ids: Tensor) -> tuple[Batch, int]:
    half = ids.size(1) // 2
    twice = ids[:, :half].repeat(1, 2)
    targets = torch.full_like(twice, IGNORED)
    targets[:, :-1] = twice[:, 1:]
    return {"ids": twice, "targets": targets}, half


def _prefix(subject: Subject, twice: Batch, half: int) -> float:
    scores: dict[Site, Average] = {}
    for found in capture(subject.model, twice):
        queries = counted(found.q_pos, found.visible)
        period = torch.full((len(found.weights),), half, device=found.weights.device)
        score = periodic_prefix_matching(found.weights, period, 0, found.visible, queries)
        scores[found.site] = scores[found.site] + score if found.site in scores else score
    return max(float(score.value.max()) for score in scores.values())


def _sinks(subject: Subject, batch: Batch) -> float:
    above, n = 0, 0
    for found in capture(subject.model, batch):
        queries = counted(found.q_pos, found.visible)[:, None]  # (B,1,T)
        mass = (found.weights[..., 0] * queries).sum(-1) / queries.sum(-1)  # (B,H)
        above, n = above + int((mass > SINK).sum()), n + mass.numel()
    return above / n
