"""Objectives: what a model is trained for. Each is called as objective(model, batch) -> (loss, metrics)."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minitf.errors import ConfigError

IGNORED = -100


class CausalLM:
    """Next-token prediction: the mean negative log-likelihood over the scored tokens, in nats.

    Args:
        chunk_rows: how many rows (tokens) go through the head and the loss at a time; None: all at once.
            The value of the loss does not depend on it. Large vocabularies gain: a chunk of float32 logits
            stays in the cache.

    Raises:
        ConfigError: chunk_rows is below 1.
    """

    takes = "text"
    sums = ("nll", "n_scored")
    needs_causal = True  # a model that sees the next token would copy it

    def __init__(self, chunk_rows: int | None = None) -> None:
        if chunk_rows is not None and chunk_rows < 1:
            raise ConfigError(f"chunk_rows ({chunk_rows}) must be at least 1, or null for all rows at once")
        self.chunk_rows = chunk_rows

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of one batch.

        Args:
            model: has `hidden(ids, pos=None) -> (B,T,D)` and `head(hidden) -> logits (...,V)`.
            batch: "ids" and "targets" (B,T) int64, where a target of -100 is not scored; "pos" (B,T) where
                rows are padded or packed.

        Returns:
            The loss, a float32 scalar: summed nll / scored tokens, 0 with zero gradient where nothing is
            scored. The metrics: "nll", the sum in nats (detached), and "n_scored", the number of scored tokens.
        """
        hidden = model.hidden(batch["ids"], batch.get("pos"))
        targets = batch["targets"].flatten()
        nll = self._summed_nll(model, hidden.flatten(0, 1), targets)
        n_scored = (targets != IGNORED).sum()
        return nll / n_scored.clamp(min=1), {"nll": nll.detach(), "n_scored": n_scored}

    def _summed_nll(self, model: nn.Module, hidden: Tensor, targets: Tensor) -> Tensor:
        """Sum the nll of hidden (N,D) against targets (N,), in float32 whatever the precision of the model."""
        n_rows = min(self.chunk_rows or len(targets), len(targets))
        sums = [
            F.cross_entropy(model.head(rows).float(), wanted, ignore_index=IGNORED, reduction="sum")
            for rows, wanted in zip(hidden.split(n_rows), targets.split(n_rows), strict=True)
        ]
        return sums[0] if len(sums) == 1 else torch.stack(sums).sum()
