"""What is lost without some heads, and without what their rows say."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
import torch

from minitf.analysis.attention_rows import SKIPPED
from minitf.analysis.forward import IGNORED, Batch, answers, evaluating, is_right, run
from minitf.analysis.heads.measure import measure
from minitf.analysis.heads.names import INDUCTION, PREVIOUS_TOKEN
from minitf.analysis.intervene.choice import Head, all_heads
from minitf.analysis.intervene.edges import other_rows, row_test
from minitf.analysis.intervene.effects import Effects
from minitf.analysis.sites import sites
from minitf.studies.loop import Subject

ROLE = "repeat"


def sets(subject: Subject, n_batches: int = 4, n_draws: int = 5) -> dict[str, float]:
    """Share of the copies that are still right without the induction heads, and without as many others.

    Induction heads match prefixes, previous-token heads of the layers below look at the token before, each above the
    threshold of its name. Random sets are drawn from the heads that are neither.

    Args:
        subject: trained on data=repeat.
        n_batches: of validation.
        n_draws: random sets; all of them are given, "random.0", "random.1", ...

    Returns:
        "full", "without_induction", "without_previous", "without_others" (all of them), "random.N", "random_mean" and
        "random_least", and "beyond_mean" and "beyond_all", how much more is lost without the induction heads than
        without random ones on average, and at most; "n_induction" and "n_previous", numbers of heads. Random sets are
        missing where the others are fewer than the induction heads.
    """
    batches = list(islice(subject.data.val_batches(), n_batches))
    induction, previous, others = kinds(subject, batches)
    effects = Effects(subject.model, batches)
    full = effects.full[ROLE].accuracy

    def left(heads: list[Head]) -> float:
        return full - effects.lost(heads)[ROLE] if heads else full

    found = {"full": full, "without_induction": left(induction), "without_previous": left(previous)}
    found |= {"without_others": left(others), "n_induction": len(induction), "n_previous": len(previous)}
    draws = [full - lost[ROLE] for _, lost in effects.of_set(induction, others, n_draws).controls] if induction else []
    found |= {f"random.{i}": value for i, value in enumerate(draws)}
    if draws:
        mean, least = sum(draws) / len(draws), min(draws)
        found |= {"random_mean": mean, "random_least": least}
        found |= {name: of - found["without_induction"] for name, of in (("beyond_mean", mean), ("beyond_all", least))}
    return found


def kinds(subject: Subject, batches: list[Batch]) -> tuple[list[Head], list[Head], list[Head]]:
    """Induction heads, previous-token heads that are none, and all others.

    Args:
        subject: any with self-attention.
        batches: that are looked at.
    """
    scores = {site: found.scores for site, found in measure(subject.model, batches).items()}
    every = all_heads(subject.model)
    induction = [(site, head) for site, head in every if scores[site]["prefix_matching"][head] > INDUCTION]
    rest = [head for head in every if head not in induction]
    previous = [(site, head) for site, head in rest if scores[site]["previous_token"][head] > PREVIOUS_TOKEN]
    return induction, previous, [head for head in rest if head not in previous]


def rows(subject: Subject, n_batches: int = 4, segments: Sequence[int] = ()) -> dict[str, float]:
    """Is attention an explanation? How far the output moves when all rows of a layer are no longer their own.

    Only the first two rounds count: in later ones a shuffled row meets an earlier copy more often. Of the first round
    the first places do not count: their rows see so few keys that a shuffle may leave them as they are.

    Args:
        subject: trained on data=repeat.
        n_batches: of validation.
        segments: [least, most], to ask 512 new rows with segments of so many symbols instead of validation. How many
            copies of an answer a shuffled row may meet depends on their lengths.

    Returns:
        For each layer L and each WAY, permute and uniform: "L.WAY.copied", median total variation distance of the
        output in the second round, "L.WAY.first" in the first one, where there is nothing to copy, and
        "L.WAY.accuracy", the share of the second round that is still right. With segments each name begins with
        "LEAST-MOST symbols.".
    """
    if segments:
        parts, first_word = [_rows_of(subject, *segments)], "-".join(map(str, segments)) + " symbols."
    else:
        parts, first_word = list(islice(subject.data.val_batches(), n_batches)), ""
    batch = {name: torch.cat([part[name] for part in parts]) for name in ("ids", "targets", f"gold.{ROLE}")}
    first, second = _first_rounds(batch)
    found = {}
    for site in sites(subject.model):
        heads = {site: list(range(site.n_heads))}
        for how in ("permute", "uniform"):
            moved = row_test(subject.model, batch, heads, how, {"copied": second, "first": first})
            with other_rows(subject.model, batch, heads, how), evaluating(subject.model), torch.no_grad():
                right = float(is_right(subject.model, batch, run(subject.model, batch))[second].float().mean())
            of_layer = {**moved, "accuracy": right}
            found |= {f"{first_word}{site.layer}.{how}.{name}": value for name, value in of_layer.items()}
    return found


def _rows_of(subject: Subject, least: int, most: int, n: int = 512) -> Batch:
    task = subject.data.task
    other = type(task)(n_symbols=task.n_symbols, least=least, most=most)
    drawn = other.rows(np.random.default_rng(0), n, subject.cfg.data.seq_len)
    return {name: torch.from_numpy(of) for name, of in drawn.items()}


def _first_rounds(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Answers of the first round without its first places, and those of the second: bool (B,T)."""
    gold = batch[f"gold.{ROLE}"].amax(-1)  # (B,T), -1 where there is nothing to copy
    place = torch.arange(gold.size(1), device=gold.device)
    begin = (gold >= 0).int().argmax(1, keepdim=True)  # of the second round
    period = begin - gold.gather(1, begin) + 1  # its first source is the token that followed the same one
    asked = answers(batch) != IGNORED
    first = asked & (place >= SKIPPED) & (place < begin)
    return first, asked & (gold >= 0) & (place < begin + period)
