"""Keys that know the token before."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from minitf.blocks.projection.free import Free


class Smeared(Free):
    """k_j <- s k_j + (1 - s) k_(j-1), s = sigmoid(alpha) per key/value head. Source: Olsson et al. 2022, argument 2.

    One layer can then do what otherwise takes a previous-token head below: find what followed an earlier copy. The
    first token of a document keeps its key. alpha starts at 0, so s at one half.
    """

    reads_previous = True

    def __init__(
        self, *, d_model: int, n_heads: int, n_kv_heads: int, d_head: int, d_value: int, bias: bool = False
    ) -> None:
        sizes = {"n_heads": n_heads, "n_kv_heads": n_kv_heads, "d_head": d_head, "d_value": d_value}
        super().__init__(d_model=d_model, **sizes, bias=bias)
        self.alpha = nn.Parameter(torch.zeros(n_kv_heads))

    def mix_keys(self, k: Tensor, k_pos: Tensor) -> Tensor:
        before = k_pos[:, :-1]
        follows = (k_pos[:, 1:] == before + 1) & (before >= 0)  # never true across documents or behind padding
        share = (-self.alpha).sigmoid()[:, None, None].to(k.dtype) * follows[:, None, :, None]  # (B or 1, G, S-1, 1)
        later = k[:, :, 1:] + share * (k[:, :, :-1] - k[:, :, 1:])
        return torch.cat([k[:, :, :1], later], 2)
