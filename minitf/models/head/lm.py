"""The head of language models."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class LMHead(nn.Linear):
    """Logits over the vocabulary, one product with a matrix; no bias.

    Args:
        d_model: width D.
        vocab_size: number of tokens V.
        n_classes: not used.
        tied_to: an embedding whose table serves as the matrix, or None for a matrix of its own.

    Source: Press and Wolf 2017 (tying).
    """

    def __init__(
        self,
        *,
        d_model: int,
        vocab_size: int,
        n_classes: int | None = None,
        tied_to: nn.Embedding | None,
    ) -> None:
        super().__init__(d_model, vocab_size, bias=False)
        if tied_to is not None:
            self.weight = tied_to.weight

    def forward(self, hidden: Tensor, pos: Tensor | None = None) -> Tensor:
        """(..., D) -> (..., V)."""
        return F.linear(hidden, self.weight)
