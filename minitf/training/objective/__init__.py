"""Objectives: what a model is trained for. One file each; called as objective(model, batch) -> (loss, metrics)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minitf.errors import ConfigError
from minitf.models.head.classify import ClassifierHead
from minitf.models.head.lm import LMHead
from minitf.models.head.masked_lm import MaskedLMHead
from minitf.models.head.pointer import PointerHead
from minitf.models.head.tag import TokenHead

EXACT = ("nll", "n_scored", "n_correct", "n_rows", "n_exact")  # the sums of an objective whose rows are right or wrong
HEADS = (LMHead, MaskedLMHead, ClassifierHead, TokenHead, PointerHead)
IGNORED = -100  # a target, or a label, that is not scored


class Objective:
    """The interface of every objective.

    Attributes:
        takes: the kind of data it is for: "text", "hidden_text", "answers", "seq2seq", "pointer", "classify" or "tag".
        sums: names of the metrics that are summed up over batches.
        needs_causal: a model that sees the next token would copy it.
        reads_source: whether a batch has another sequence, "src", that the model encodes first.
        heads: which of minitf's heads give what it needs; one of somebody else's is taken at its word.
        task: the option of the config group that builds it, for messages.
        fits: choices of model that fit.
        head: the option of model/head that it needs.
    """

    takes: ClassVar[str]
    sums: ClassVar[tuple[str, ...]] = ("nll", "n_scored", "n_correct")
    needs_causal: ClassVar[bool] = False
    reads_source: ClassVar[bool] = False
    heads: ClassVar[tuple[type[nn.Module], ...]]
    task: ClassVar[str]
    fits: ClassVar[str]
    head: ClassVar[str]

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of one batch.

        Args:
            model: any that `check` lets through.
            batch: int64 tensors, as the class says. "pos" (B,T) is there only where rows are padded or packed.

        Returns:
            The loss, a float32 scalar: a sum over what is scored / its number, 0 with zero gradient where nothing is
            scored, plus the extra losses of the model's parts while it trains. The metrics, which can be added up over
            batches: "nll", the negative log-likelihood in nats, without smoothing and extra losses (detached);
            "n_scored"; where `sums` has them "n_correct", the scored places whose target has the largest logit,
            "n_rows", the rows that have a scored place, and "n_exact", those in which all of these are right.
        """
        raise NotImplementedError

    def check(self, model: nn.Module) -> None:
        """Raise ConfigError, with a way out, where the model cannot be trained for this.

        Args:
            model: as built.
        """
        name, encodes = type(model).__name__, hasattr(model, "encode")
        if self.reads_source and not encodes:
            raise ConfigError(
                f"task={self.task} gives the model a source to read, but {name} has none: use {self.fits}"
            )
        if encodes and not self.reads_source:
            raise ConfigError(
                f"task={self.task} gives the model one row of tokens, but {name} reads a source as well: "
                f"use {self.fits}, or task=seq2seq"
            )
        if isinstance(model.head, HEADS) and not isinstance(model.head, self.heads):
            raise ConfigError(
                f"task={self.task} cannot use what {type(model.head).__name__} gives: use model/head={self.head}"
            )
        if self.needs_causal and model.sees_future:
            raise ConfigError(
                "the task predicts the next token, but the model's mask shows it: "
                "use model/mask=causal or model/mask=sliding_window"
            )


def aux_losses(model: nn.Module) -> Tensor | float:
    """The sum of what parts have left in `aux_loss` during the last pass, 0.0 if there is nothing.

    Args:
        model: with parts such as a mixture of experts.
    """
    found = [loss for m in model.modules() if isinstance(loss := getattr(m, "aux_loss", None), Tensor)]
    return torch.stack([loss.float() for loss in found]).sum() if found else 0.0


def result(
    model: nn.Module, summed: Tensor, n_scored: Tensor, nll: Tensor, **more: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """What every objective returns, from sums.

    Args:
        model: its parts' extra losses count while it trains, and where something is scored.
        summed: the loss, summed over what is scored.
        n_scored: int tensor.
        nll: summed.
        more: further metrics.
    """
    loss = summed / n_scored.clamp(min=1)
    if model.training:
        loss = loss + aux_losses(model) * n_scored.clamp(max=1)
    return loss, {"nll": nll.detach(), "n_scored": n_scored, **more}


def cross_entropy(
    head: Callable[[Tensor], Tensor],
    hidden: Tensor,
    targets: Tensor,
    chunk_rows: int | None = None,
    label_smoothing: float = 0.0,
    mark: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Loss of hidden rows, summed over those that are scored, in float32 whatever the precision of the model.

    With label smoothing e the loss of a row is (1 - e) nll + e times the mean over all V outputs of -log p, as in
    torch.nn.functional.cross_entropy. Source: Szegedy et al. 2016, section 7.

    Args:
        head: hidden rows (n,D) -> logits (n,V).
        hidden: (N,D).
        targets: int64 (N,), IGNORED where a row is not scored.
        chunk_rows: how many rows go through the head at a time; None: all at once. The sums do not depend on it.
        label_smoothing: e.
        mark: whether to say which rows have their target as the largest logit.

    Returns:
        (loss, nll, which rows are right). The first two are sums, without smoothing the same tensor; the last is bool
        (N,), or None.
    """
    n_rows = max(1, min(chunk_rows or len(targets), len(targets)))
    sums, marks = [], []
    for rows, wanted in zip(hidden.split(n_rows), targets.split(n_rows), strict=True):
        logits = head(rows).float()
        sums.append(_losses(logits, wanted, label_smoothing))
        if mark:
            marks.append(is_right(logits, wanted))
    loss, nll = map(_add, zip(*sums, strict=True))
    right = torch.cat(marks) if mark else None
    return (loss, nll, right) if label_smoothing else (loss, loss, right)


def is_right(logits: Tensor, targets: Tensor) -> Tensor:
    """Where the target has the largest logit; bool, no gradient, False where nothing is scored.

    Args:
        logits: (..., V).
        targets: (...), IGNORED where a row is not scored.
    """
    return logits.detach().argmax(-1) == targets


def exact_match(right: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """The sums "n_correct", "n_rows" and "n_exact" of a batch: see `Objective.__call__`.

    Args:
        right: bool, one for each element of `targets` in their order, False where nothing is scored.
        targets: (B, ...), IGNORED where nothing is scored.
    """
    scored = (targets != IGNORED).flatten(1)
    rows = scored.any(1)
    exact = rows & (right.view_as(scored) == scored).all(1)
    return {"n_correct": right.sum(), "n_rows": rows.sum(), "n_exact": exact.sum()}


def check_chunk_rows(chunk_rows: int | None) -> None:
    """Raise ConfigError unless it is None or at least 1."""
    if chunk_rows is not None and chunk_rows < 1:
        raise ConfigError(f"chunk_rows ({chunk_rows}) must be at least 1, or null for all rows at once")


def _losses(logits: Tensor, targets: Tensor, label_smoothing: float) -> tuple[Tensor, Tensor]:
    """Summed loss and nll."""
    if not label_smoothing:
        nll = F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")
        return nll, nll
    log_p = logits.log_softmax(-1)
    nll = F.nll_loss(log_p, targets, ignore_index=IGNORED, reduction="sum")
    spread = -log_p.mean(-1).masked_fill(targets == IGNORED, 0.0).sum()
    return (1 - label_smoothing) * nll + label_smoothing * spread, nll


def _add(parts: tuple[Tensor, ...]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum()
