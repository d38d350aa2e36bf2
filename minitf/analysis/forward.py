"""How a batch goes through a model, and what comes out: the only file of the analysis that knows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

IGNORED = -100  # a target, or a label, that is not scored

Batch = Mapping[str, Tensor]


def run(model: nn.Module, batch: Batch) -> Tensor:
    """Logits of a batch, with gradients where they are switched on.

    Args:
        model: called with (src, src_pos, ids, pos) where the batch has a source, else with (ids, pos).
        batch: "ids" (B,T) and perhaps "src" (B,S), "src_pos", "pos"; other entries are not read.

    Returns:
        (B,T,V); (B,T,S) of a model that points at its source; (B,C) of one that classifies rows.
    """
    if "src" in batch:
        return model(batch["src"], batch.get("src_pos"), batch["ids"], batch.get("pos"))
    return model(batch["ids"], batch.get("pos"))


def answers(batch: Batch) -> Tensor:
    """What is asked: int64 (B,T), (B,T,R) where a token has several read-outs, (B,1) of labels; IGNORED elsewhere."""
    return batch["targets"] if "targets" in batch else batch["label"][:, None]


def losses(model: nn.Module, batch: Batch, logits: Tensor | None = None) -> Tensor:
    """Negative log-likelihood of each answer in nats, with gradients where they are switched on.

    Args:
        model, batch: as for `run`; the batch has "targets" or "label".
        logits: of this batch, where they are known already.

    Returns:
        float32, the shape of `answers`: 0 where nothing is asked.
    """
    wanted = answers(batch)
    rows = _rows(run(model, batch) if logits is None else logits, wanted).float()
    return F.cross_entropy(rows.flatten(0, -2), wanted.flatten(), ignore_index=IGNORED, reduction="none").view_as(
        wanted
    )


def is_right(model: nn.Module, batch: Batch, logits: Tensor | None = None) -> Tensor:
    """Where the answer has the largest logit: bool, the shape of `answers`, False where nothing is asked.

    Args:
        model, batch, logits: as for `losses`.
    """
    wanted = answers(batch)
    return _rows(run(model, batch) if logits is None else logits, wanted).argmax(-1) == wanted


def _rows(logits: Tensor, wanted: Tensor) -> Tensor:
    """Logits with one row for each answer."""
    if wanted.dim() == 3:  # the outputs are those of the read-outs side by side
        return logits.unflatten(-1, (wanted.size(2), -1))
    return logits[:, None] if logits.dim() == 2 else logits


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for the time of a block; afterwards each module is as it was. Gradients are left alone."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def n_rows(batch: Batch) -> int:
    """B."""
    return batch["ids"].size(0)


def rows_of(batch: Batch, start: int, end: int) -> dict[str, Tensor]:
    """Rows `start` to `end` - 1 of a batch; what has no rows of its own, such as positions (1,T), stays."""
    n = n_rows(batch)
    return {k: v[start:end] if isinstance(v, Tensor) and v.dim() and v.size(0) == n else v for k, v in batch.items()}


def positions(batch: Batch, kind: str) -> tuple[Tensor, Tensor]:
    """Which token each query and each key of a site is, as `minitf.positions` says.

    Args:
        batch: as for `run`.
        kind: of the site.

    Returns:
        int64 (B,T) and (B,S), -1 at padding.
    """
    target, source = _pos(batch, "ids", "pos"), _pos(batch, "src", "src_pos") if "src" in batch else None
    if kind == "encoder":
        return source, source
    return (target, source) if kind == "cross" else (target, target)


def _pos(batch: Batch, ids: str, pos: str) -> Tensor:
    shape = batch[ids].shape
    found = batch.get(pos)
    return (torch.arange(shape[1], device=batch[ids].device) if found is None else found).expand(shape)
