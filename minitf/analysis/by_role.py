"""How well a model answers, in all and at the places that ask for each role; `scores` has plain numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from minitf.analysis.forward import IGNORED, Batch, answers, evaluating, is_right, losses, run
from minitf.analysis.heads.roles import gold_of

ALL = "all"  # every answer


@dataclass(frozen=True)
class Answered:
    """Sums over answers; two of them add up to that of both.

    Args:
        nll: negative log-likelihood in nats.
        n_right: answers with the largest logit.
        n: answers.
    """

    nll: float
    n_right: int
    n: int

    def __add__(self, other: Answered) -> Answered:
        return Answered(self.nll + other.nll, self.n_right + other.n_right, self.n + other.n)

    @property
    def loss(self) -> float:
        """Nats per answer, 0 and up; NaN where nothing is asked."""
        return self.nll / self.n if self.n else math.nan

    @property
    def accuracy(self) -> float:
        """Share of right answers, 0 .. 1; NaN where nothing is asked."""
        return self.n_right / self.n if self.n else math.nan


@torch.no_grad()
def answered(model: nn.Module, batches: Iterable[Batch]) -> dict[str, Answered]:
    """Let a model answer, in evaluation mode.

    Args:
        model: see `minitf.analysis.forward.run`.
        batches: with "targets" or "label", and "gold.<role>" where the data knows it.

    Returns:
        ALL and each role -> its score. A role's answers are those at the places where its gold is known; where a place
        has as many read-outs as there are roles, the read-out of the role's number.
    """
    total: dict[str, Answered] = {}
    with evaluating(model):
        for batch in batches:
            logits = run(model, batch)
            nll, right, asked = losses(model, batch, logits), is_right(model, batch, logits), answers(batch) != IGNORED
            for name, places in classes(batch, asked).items():
                found = Answered(float(nll[places].double().sum()), int(right[places].sum()), int(places.sum()))
                total[name] = total[name] + found if name in total else found
    return total


def classes(batch: Batch, asked: Tensor) -> dict[str, Tensor]:
    """ALL and each role -> which answers are its own, bool like `asked`.

    Args:
        batch: with "gold.<role>" (B,T,K) or, of whole rows, (B,1,K).
        asked: (B,T), (B,T,R) or (B,1), where something is asked.
    """
    gold = gold_of(batch)
    found = {ALL: asked}
    for number, (role, source) in enumerate(gold.items()):
        places = (source >= 0).any(-1)
        places = places.expand(asked.shape[:2]) if places.size(1) in (1, asked.size(1)) else places.any(1, True)
        if asked.dim() == 3:
            own = torch.arange(asked.size(2), device=asked.device) == number
            places = places[:, :, None] & (own if asked.size(2) == len(gold) else True)
        found[role] = asked & places
    return found


def changes(full: Mapping[str, Answered], other: Mapping[str, Answered], measure: str) -> dict[str, float]:
    """How much worse, class by class: positive where something was lost.

    Args:
        full: of the whole model.
        other: of the same answers, of a model that lacks something.
        measure: "accuracy", what it lost of it; "loss", what it gained of it, in nats.
    """
    larger, smaller = {"accuracy": (full, other), "loss": (other, full)}[measure]
    # a difference taken this way round: what is equal gives 0.0, not -0.0
    return {name: getattr(larger[name], measure) - getattr(smaller[name], measure) for name in full}
