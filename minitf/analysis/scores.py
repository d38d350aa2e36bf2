"""How well a model does a task: plain functions of a model and batches, for interventions to measure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn

from minitf.analysis.forward import IGNORED, Batch, answers, evaluating, is_right, losses
from minitf.errors import DataError

Score = Callable[[nn.Module], float]


def accuracy(model: nn.Module, batches: Iterable[Batch]) -> float:
    """Share of the answers of all batches with the largest logit, 0 to 1.

    Args:
        model: in any mode; it is evaluated.
        batches: with "targets" or "label"; read again at each call, so no generator.

    Raises:
        DataError: nothing is asked.
    """
    return _over(model, batches, lambda batch: is_right(model, batch).sum())


def mean_loss(model: nn.Module, batches: Iterable[Batch]) -> float:
    """Negative log-likelihood per answer in nats, over all batches: sums over sums. As a score it is -mean_loss.

    Args:
        model, batches: as for `accuracy`.

    Raises:
        DataError: nothing is asked.
    """
    return _over(model, batches, lambda batch: losses(model, batch).double().sum())


def _over(model: nn.Module, batches: Iterable[Batch], summed: Callable[[Batch], torch.Tensor]) -> float:
    total, n = 0.0, 0
    with evaluating(model), torch.no_grad():
        for batch in batches:
            total += float(summed(batch))
            n += int((answers(batch) != IGNORED).sum())
    if n == 0:
        raise DataError("these batches ask nothing: give batches with targets, and as a list, to be read again")
    return total / n
