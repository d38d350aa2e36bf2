"""The head of BERT's pre-training."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minitf.blocks.norm.layer import LayerNorm
from minitf.models.head.lm import LMHead


class MaskedLMHead(nn.Module):
    """Logits over the vocabulary: norm(gelu(dense(x))), then one product with a matrix, and a bias.

    Args:
        d_model: width D.
        vocab_size: number of tokens V.
        n_classes: not used.
        tied_to: an embedding whose table serves as the matrix, or None for a matrix of its own.
        eps: of the LayerNorm.

    Source: Devlin et al. 2019 (BERT), their code.
    """

    def __init__(
        self,
        *,
        d_model: int,
        vocab_size: int,
        n_classes: int | None = None,
        tied_to: nn.Embedding | None,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.dense = nn.Linear(d_model, d_model)
        self.norm = LayerNorm(d_model, eps=eps)
        self.output = LMHead(d_model=d_model, vocab_size=vocab_size, tied_to=tied_to)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, hidden: Tensor, pos: Tensor | None = None) -> Tensor:
        """(..., D) -> (..., V)."""
        return self.output(self.norm(F.gelu(self.dense(hidden)))) + self.bias
