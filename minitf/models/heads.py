"""Heads: from the last hidden state to what the task asks for."""

import torch.nn.functional as F
from torch import Tensor, nn


class LMHead(nn.Linear):
    """Logits of the next token.

    Args:
        d_model: width D.
        vocab_size: number of tokens V.
        tied_to: an embedding whose table serves as the matrix, or None for a matrix of its own.

    Source of tying: Press and Wolf 2017.
    """

    def __init__(self, d_model: int, vocab_size: int, tied_to: nn.Embedding | None) -> None:
        super().__init__(d_model, vocab_size, bias=False)
        if tied_to is not None:
            self.weight = tied_to.weight

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., D) -> (..., V)."""
        return F.linear(hidden, self.weight)
