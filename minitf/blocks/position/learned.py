"""A learned table of places."""

from __future__ import annotations

from torch import Tensor, nn

from minitf.blocks.checks import check_memory
from minitf.blocks.position import Position
from minitf.positions import offset


class Learned(Position):
    """One learned vector per place, added to the embedding. Source: Radford et al. 2018 (GPT), section 3.1."""

    uses = frozenset({"embed"})

    def __init__(self, *, d_model: int, d_head: int, n_heads: int, max_len: int, causal: bool) -> None:
        super().__init__(d_model=d_model, d_head=d_head, n_heads=n_heads, max_len=max_len, causal=causal)
        check_memory(max_len * d_model, f"a learned position table for data.seq_len={max_len}")
        self.table = nn.Embedding(max_len, d_model)
        self.limit = max_len

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        return x + self.table(offset(pos))
