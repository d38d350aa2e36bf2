"""Which places of the source a state reads."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from minitf.blocks.attend.reference import attend_reference
from minitf.blocks.mask.full import Full
from minitf.blocks.normalize import Normalize
from minitf.blocks.score import Score
from minitf.errors import ConfigError
from minitf.tap import Tappable


class Alignment(Tappable):
    """Attention of one head without projections: keys and values are the memory itself, queries the decoder's states.

    Args:
        d_model: width D.
        score, normalize: factories of the parts, the same as in any attention.

    Source: Bahdanau et al. 2015, section 3.1; Luong et al. 2015, section 3.1.
    """

    tap_points = ("weights",)

    def __init__(self, *, d_model: int, score: Callable[..., Score], normalize: Callable[..., Normalize]) -> None:
        super().__init__()
        self.score = score(d_head=d_model, n_heads=1)
        self.normalize = normalize(n_heads=1)

    def forward(self, states: Tensor, memory: Tensor, memory_pos: Tensor | None) -> Tensor:
        """States (B,T,D), memory (B,S,D) and its positions -> what they read, (B,T,D)."""
        context, _ = self._attend(states, memory, memory_pos, self._tap_weights)
        return context

    def step(self, state: Tensor, memory: Tensor, memory_pos: Tensor | None) -> tuple[Tensor, Tensor]:
        """One state (B,D) of a loop -> what it reads (B,D), weights (B,1,1,S), of which `tell` shall be told."""
        context, weights = self._attend(state[:, None], memory, memory_pos, None)
        return context[:, 0], weights

    def tell(self, weights: Tensor) -> None:
        """Show the weights of all steps of a loop (B,1,T,S) to a tap; it cannot change them any more.

        Raises:
            ConfigError: it wants to.
        """
        if self.tap is not None:
            if self.tap.edits("weights"):
                raise ConfigError("each step depends on the weights before it: they can be read here, not changed")
            self.tap("weights", weights)

    def _attend(
        self, states: Tensor, memory: Tensor, memory_pos: Tensor | None, tap: Callable[[str, Tensor], Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        if memory_pos is None:
            memory_pos = torch.arange(memory.size(1), device=memory.device)[None]
        keys = memory[:, None]
        context, weights = attend_reference(
            states[:, None],
            keys,
            keys,
            score=self.score,
            normalize=self.normalize,
            mask=Full(),
            q_pos=memory_pos.new_zeros(1, states.size(1)),
            k_pos=memory_pos,
            tap=tap,
        )
        return context[:, 0], weights

    def _tap_weights(self, point: str, value: Tensor) -> Tensor:
        return self.tap(point, value) if self.tap is not None and point in self.tap_points else value
