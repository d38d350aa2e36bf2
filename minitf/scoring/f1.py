"""Macro F1: the mean over classes of the F1 of each, which rare classes count as much in as frequent ones."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from minitf.errors import DataError


def macro_f1(batches: Iterable[tuple[Tensor, Tensor]], n_classes: int, ignored: int) -> float:
    """Macro F1 over all batches together: hits and misses of each class are summed before anything is divided.

    Args:
        batches: pairs of predicted and right classes, int64 tensors of one shape.
        n_classes: at least 2. Those that are neither predicted nor right anywhere do not count.
        ignored: the right class where nothing is scored.

    Raises:
        DataError: torchmetrics is not installed.
    """
    try:
        from torchmetrics.classification import MulticlassF1Score
    except ImportError:
        raise DataError("F1 needs torchmetrics, which is not installed: pip install torchmetrics") from None
    metric = MulticlassF1Score(n_classes, average="macro", ignore_index=ignored, validate_args=False)
    for predicted, right in batches:
        metric.update(predicted.flatten(), right.flatten())
    return float(metric.compute())
