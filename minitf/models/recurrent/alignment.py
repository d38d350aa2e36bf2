"""Which places of the source a state reads."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from minitf.blocks.attend.reference import attend_reference
from minitf.blocks.mask.full import Full
from minitf.blocks.normalize import Normalize
from minitf.blocks.score import Score
from minitf.blocks.score.additive import Additive
from minitf.cache import KVCache
from minitf.errors import ConfigError
from minitf.tap import Tappable


class Alignment(Tappable):
    """Attention of one head without projections: keys and values are the memory itself, queries the decoder's states.

    Args:
        d_model: width D.
        score, normalize: factories of the parts, the same as in any attention.

    Attributes:
        projects: whether the score changes the keys by a matrix, so that it pays to keep them.

    Source: Bahdanau et al. 2015, section 3.1; Luong et al. 2015, section 3.1.
    """

    tap_points = ("weights",)

    def __init__(self, *, d_model: int, score: Callable[..., Score], normalize: Callable[..., Normalize]) -> None:
        super().__init__()
        self.score = score(d_head=d_model, n_heads=1)
        self.normalize = normalize(n_heads=1)
        self.projects = type(self.score) is Additive  # not a wrapped or changed one

    def forward(self, states: Tensor, memory: Tensor, memory_pos: Tensor | None) -> Tensor:
        """States (B,T,D), memory (B,S,D) and its positions -> what they read, (B,T,D)."""
        context, _ = self._attend(states, memory[:, None], memory, memory_pos, self.score, self._tap_weights)
        return context

    def keys(self, memory: Tensor, memory_pos: Tensor | None, cache: KVCache | None = None) -> Tensor:
        """What the steps of a loop compare their states with (B,1,S,D), made once for all of them.

        Args:
            memory, memory_pos: the source (B,S,D) and its positions.
            cache: keeps the keys from one call to the next.

        Raises:
            ConfigError: the cache is that of another source.
        """
        if not self.projects:
            return memory[:, None]
        if cache is None or cache.n_seen == 0:
            keys = memory[:, None] @ self.score.w_k
            if cache is None:
                return keys
            pos = _positions(memory) if memory_pos is None else memory_pos
            cache.update(keys, pos=pos, plain=memory_pos is None)
        (keys,), _ = cache.read()
        held = (keys.size(0), cache.n_seen)
        if held != memory.shape[:2]:
            raise ConfigError(
                f"the source cache holds {held[0]} rows of {held[1]} tokens, the source is {tuple(memory.shape)}: "
                "make new caches or reset them"
            )
        return keys

    def step(self, state: Tensor, keys: Tensor, memory: Tensor, memory_pos: Tensor | None) -> tuple[Tensor, Tensor]:
        """One state (B,D) of a loop -> what it reads (B,D), weights (B,1,1,S), of which `tell` shall be told."""
        score = _OneQuery(self.score) if self.projects else self.score
        context, weights = self._attend(state[:, None], keys, memory, memory_pos, score, None)
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
        self,
        states: Tensor,
        keys: Tensor,
        memory: Tensor,
        memory_pos: Tensor | None,
        score: Score | _OneQuery,
        tap: Callable[[str, Tensor], Tensor] | None,
    ) -> tuple[Tensor, Tensor]:
        if memory_pos is None:
            memory_pos = _positions(memory)
        if self.tap is not None:
            self.tap.keys(memory_pos)
        context, weights = attend_reference(
            states[:, None],
            keys,
            memory[:, None],
            score=score,
            normalize=self.normalize,
            mask=Full(),
            q_pos=memory_pos.new_zeros(1, states.size(1)),
            k_pos=memory_pos,
            tap=tap,
        )
        return context[:, 0], weights

    def _tap_weights(self, point: str, value: Tensor) -> Tensor:
        return self.tap(point, value) if self.tap is not None and point in self.tap_points else value


class _OneQuery:
    """The additive score of a query (B,1,1,D) with keys (B,1,S,D) that are projected already."""

    def __init__(self, score: Additive) -> None:
        self.score, self.by_row = score, score.by_row

    def __call__(self, q: Tensor, keys: Tensor) -> Tensor:
        hidden = (q @ self.score.w_q + keys).tanh()  # (B,1,S,D)
        return (hidden @ self.score.v[..., None]).transpose(-2, -1)


def _positions(memory: Tensor) -> Tensor:
    return torch.arange(memory.size(1), device=memory.device)[None]
