"""Position schemes: how a model learns where a token stands.

A scheme works through any of three hooks: added to the embedding, rotating queries and keys, or biasing the scores.
`uses` names the hooks that a scheme needs; attention and model compare it with what they accept.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn


class Position(nn.Module):
    """The interface, and the scheme that adds nothing.

    Args:
        d_model: width D of the embedding.
        d_head: width that `rotate` sees (attention's d_rotary).
        n_heads: query heads H.
        max_len: longest row of the data; binds learned tables only.
        causal: whether a query reads only what stands before it.

    Attributes:
        limit: number of places the scheme can tell apart, or None if there is no end.
    """

    uses: ClassVar[frozenset[str]] = frozenset()
    limit: int | None = None

    def __init__(self, *, d_model: int, d_head: int, n_heads: int, max_len: int, causal: bool) -> None:
        super().__init__()

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        """(B,T,D) and positions (B or 1, T) -> (B,T,D)."""
        return x

    def rotate(self, x: Tensor, pos: Tensor, table: Any = None) -> Tensor:
        """(B,H,T,d) and positions (B or 1, T) -> (B,H,T,d); `table` is that of these positions, if it was made."""
        return x

    def turns(self, pos: Tensor, dtype: torch.dtype) -> Any:
        """What `rotate` needs to know of positions (B or 1, T), for vectors of a dtype; None: nothing."""
        return None

    def bias(self, q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
        """(B or 1, T), (B or 1, S) -> (B or 1, H, T, S), added to the scores; None adds nothing."""
        return None
