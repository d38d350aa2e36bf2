"""How far back heads look: scores by offset."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

LEAST_SHARE = 0.5  # an offset counts where so many of the rows can look at it


@dataclass(frozen=True)
class Offsets:
    """Sums by offset k = base - column, from -reach to reach; two of them add up to that of both pieces.

    Args:
        mass: float64 (H, 2 reach + 1), weight at each offset.
        n_seen: float64 (2 reach + 1,), rows that may look at it.
        n_largest: float64 (H, 2 reach + 1), rows whose largest weight is there.
        n_rows: float64 (), rows in all.
    """

    mass: Tensor
    n_seen: Tensor
    n_largest: Tensor
    n_rows: Tensor

    def __add__(self, other: Offsets) -> Offsets:
        reach = max(self.reach, other.reach)
        a, b = self.widened(reach), other.widened(reach)
        return Offsets(a.mass + b.mass, a.n_seen + b.n_seen, a.n_largest + b.n_largest, a.n_rows + b.n_rows)

    @property
    def reach(self) -> int:
        """The largest offset."""
        return len(self.n_seen) // 2

    def widened(self, reach: int) -> Offsets:
        """The same with room for larger offsets."""
        pad = [reach - self.reach] * 2
        return Offsets(F.pad(self.mass, pad), F.pad(self.n_seen, pad), F.pad(self.n_largest, pad), self.n_rows)

    def score(self, k: int) -> Tensor:
        """c_k = mean A[i, i - k] over the rows that may read that key: (H,), 0 .. 1; NaN where none may.

        k = 1 is the previous-token score, above 0.4 a previous-token head. Source: Elhage et al. 2021.
        """
        if abs(k) > self.reach or self.n_seen[k + self.reach] == 0:
            return torch.full_like(self.mass[:, 0], torch.nan)
        return self.mass[:, k + self.reach] / self.n_seen[k + self.reach]

    def best(self, least_share: float = LEAST_SHARE) -> tuple[Tensor, Tensor]:
        """The offset with the largest c_k of each head, int64 (H,), and that c_k (H,).

        Args:
            least_share: offsets that fewer of the rows can look at are left out: far ones reach only the first token.
        """
        allowed = self.n_seen >= least_share * self.n_rows
        scores = (self.mass / self.n_seen.clamp_min(1)).masked_fill(~allowed, -1.0)
        value, index = scores.max(-1)
        value = value.where((value >= 0) & (self.n_rows > 0), torch.nan)
        return index - self.reach, value

    def steady(self) -> tuple[Tensor, Tensor]:
        """The offset at which most rows have their largest weight, int64 (H,), and the share of rows, (H,) 0 .. 1.

        At 0.9 and above it is a positional head. Source: Voita et al. 2019, section 5.1.
        """
        n, index = self.n_largest.max(-1)
        return index - self.reach, n / self.n_rows.where(self.n_rows > 0, torch.nan)


def offsets(weights: Tensor, base: Tensor, visible: Tensor, rows: Tensor) -> Offsets:
    """Weights by offset.

    Args:
        weights: (B,H,T,S).
        base: int64 (B,T), the column of each query that has offset 0, see `rows.base_columns`.
        visible: bool (B,T,S).
        rows: bool (B,T), which queries count.
    """
    n_heads, n_keys = weights.size(1), weights.size(3)
    reach = max(weights.size(2), n_keys, int(base.max()) + 1 if base.numel() else 0)
    index = base[:, :, None] - torch.arange(n_keys, device=weights.device) + reach  # (B,T,S)
    asked = rows[:, :, None] & visible
    by_head = weights.transpose(0, 1)[:, asked].double()  # (H,N)
    mass = by_head.new_zeros(n_heads, 2 * reach + 1).index_add_(1, index[asked], by_head)
    n_seen = torch.bincount(index[asked], minlength=2 * reach + 1).double()
    top, at = weights.max(-1)  # (B,H,T)
    lands = (base[:, None] - at + reach)[rows[:, None].expand_as(at)]
    head = torch.arange(n_heads, device=weights.device)[None, :, None].expand_as(at)[rows[:, None].expand_as(at)]
    there = (top > 0)[rows[:, None].expand_as(at)].double()
    n_largest = mass.new_zeros(n_heads, 2 * reach + 1).index_put_((head, lands), there, accumulate=True)
    return Offsets(mass, n_seen, n_largest, rows.sum().double())
