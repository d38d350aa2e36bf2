"""The head of language models."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from minitf.blocks.checks import check_finite


class LMHead(nn.Linear):
    """Logits over the vocabulary, one product with a matrix; no bias.

    Args:
        d_model: width D.
        vocab_size: number of tokens V.
        n_classes: not used.
        tied_to: an embedding whose table serves as the matrix, or None for a matrix of its own.
        power: 0.0 leaves the logits as they are; -0.5 divides them by sqrt(d_model), as T5 does with a tied table.

    Source of tying: Press and Wolf 2017. Source of the division: Raffel et al. 2020 (T5), their code.
    """

    def __init__(
        self,
        *,
        d_model: int,
        vocab_size: int,
        n_classes: int | None = None,
        tied_to: nn.Embedding | None,
        power: float = 0.0,
    ) -> None:
        check_finite(**{"head power": power})
        super().__init__(d_model, vocab_size, bias=False)
        if tied_to is not None:
            self.weight = tied_to.weight
        self.factor = d_model**power

    def forward(self, hidden: Tensor, pos: Tensor | None = None) -> Tensor:
        """(..., D) -> (..., V)."""
        if self.factor != 1.0:
            hidden = hidden * self.factor
        return F.linear(hidden, self.weight)
