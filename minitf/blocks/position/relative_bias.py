"""Learned biases by distance."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from minitf.blocks.checks import check_memory, check_positive
from minitf.blocks.position import Position
from minitf.errors import ConfigError
from minitf.positions import offset


class RelativeBias(Position):
    """Add a learned number per head and distance to each score; far distances share one.

    Half of the buckets hold one distance each, the others grow in proportion to the distance. Where a token reads
    later ones too, half of all buckets are theirs. Source: Raffel et al. 2020 (T5), section 2.1.

    Args:
        n_buckets: numbers per head.
        max_distance: all distances from here on share the last bucket.

    Raises:
        ConfigError: too few buckets, or a max_distance within those of one distance each.
    """

    uses = frozenset({"bias"})

    def __init__(
        self,
        *,
        d_model: int,
        d_head: int,
        n_heads: int,
        max_len: int,
        causal: bool,
        n_buckets: int = 32,
        max_distance: int = 128,
    ) -> None:
        super().__init__(d_model=d_model, d_head=d_head, n_heads=n_heads, max_len=max_len, causal=causal)
        check_positive(n_buckets=n_buckets, max_distance=max_distance)
        n_exact = n_buckets // (2 if causal else 4)
        if n_exact == 0:
            raise ConfigError(f"n_buckets ({n_buckets}) must be at least {2 if causal else 4}: 32 is usual")
        if max_distance <= n_exact:
            raise ConfigError(
                f"max_distance ({max_distance}) must be above {n_exact}: with n_buckets={n_buckets} each smaller "
                "distance has a bucket of its own"
            )
        check_memory(n_buckets * n_heads, f"a relative bias of n_buckets={n_buckets}")
        self.causal, self.n_buckets, self.max_distance = causal, n_buckets, max_distance
        self.table = nn.Embedding(n_buckets, n_heads)

    def bias(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        ahead = offset(k_pos)[:, None, :] - offset(q_pos)[:, :, None]
        return self.table(self.bucket(ahead)).movedim(-1, 1)

    def bucket(self, ahead: Tensor) -> Tensor:
        """Which bucket a key belongs to that stands `ahead` places after its query; int64, same shape."""
        if self.causal:
            return self._by_distance((-ahead).clamp_min(0), self.n_buckets)
        half = self.n_buckets // 2
        return self._by_distance(ahead.abs(), half) + half * (ahead > 0)

    def _by_distance(self, distance: Tensor, n: int) -> Tensor:
        n_exact = n // 2
        growth = (distance.clamp_min(1).float() / n_exact).log() / math.log(self.max_distance / n_exact)
        far = n_exact + (growth * (n - n_exact)).long()
        return torch.where(distance < n_exact, distance, far.clamp_max(n - 1))
