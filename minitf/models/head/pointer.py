"""A place of the source for every token."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from minitf.blocks.score import Score


class PointerHead(nn.Module):
    """Logits of the places of the source: how well each hidden state fits each of them. The weights are the output.

    Args:
        d_model: width D.
        vocab_size, n_classes, tied_to: not used.
        score: factory of the score, with one head of width D; its queries are the hidden states, its keys the memory.

    Attributes:
        reads_memory: it is called with the memory and its positions.

    Source: Vinyals, Fortunato and Jaitly 2015 (Pointer Networks), equation 3; there the score is additive.
    """

    reads_memory = True

    def __init__(
        self,
        *,
        d_model: int,
        vocab_size: int | None = None,
        n_classes: int | None = None,
        tied_to: nn.Embedding | None = None,
        score: Callable[..., Score],
    ) -> None:
        super().__init__()
        self.score = score(d_head=d_model, n_heads=1)

    def forward(self, hidden: Tensor, memory: Tensor, memory_pos: Tensor | None = None) -> Tensor:
        """How well each token fits each place of the source.

        Args:
            hidden: (B,T,D).
            memory: (B,S,D).
            memory_pos: (B or 1, S), -1 at padding; None means that there is none.

        Returns:
            (B,T,S), -inf at padding.
        """
        if memory_pos is None:
            memory_pos = torch.arange(memory.size(1), device=memory.device)[None]
        real = (memory_pos >= 0)[:, None]  # (B,1,S)
        fit = self.score.by_row(self.score(hidden[:, None], memory[:, None]), real.sum(-1, keepdim=True)[:, None])
        return fit[:, 0].masked_fill(~real, float("-inf"))
