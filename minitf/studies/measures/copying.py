"""How well a model copies: rounds of a repeated segment, told apart."""

from __future__ import annotations

import torch

from minitf.analysis.forward import IGNORED, answers, evaluating, is_right, losses, run
from minitf.studies.loop import Subject


@torch.no_grad()
def rounds(subject: Subject) -> dict[str, float]:
    """Loss and accuracy of data=repeat on the validation split, by whether there is something to copy.

    Args:
        subject: its data has gold for the role "repeat".

    Returns:
        "copied" and "copied_nll", of the places whose answer can be read; "first_nll", nats per token of the first
        round, where it is scored at all, and "in_context", copied_nll - first_nll: below 0 where a model uses what it
        has read (Olsson et al. 2022).
    """
    sums = {name: torch.zeros(3, dtype=torch.float64) for name in ("copied", "first")}
    with evaluating(subject.model):
        for batch in subject.data.val_batches():
            logits, asked = run(subject.model, batch), answers(batch) != IGNORED
            nll, right = losses(subject.model, batch, logits), is_right(subject.model, batch, logits)
            has_source = (batch["gold.repeat"] >= 0).any(-1)
            later = has_source.cumsum(1) > 0
            for name, where in {"copied": asked & has_source, "first": asked & ~later}.items():
                sums[name] += torch.stack(
                    [nll[where].double().sum(), right[where].double().sum(), where.double().sum()]
                )
    nll, right, n = sums["copied"].tolist()
    found = {"copied": right / n, "copied_nll": nll / n}
    first_nll, _, n_first = sums["first"].tolist()
    if n_first:
        found |= {"first_nll": first_nll / n_first, "in_context": nll / n - first_nll / n_first}
    return found
