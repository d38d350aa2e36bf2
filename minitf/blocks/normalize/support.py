"""Which keys a sparse normaliser keeps."""

from __future__ import annotations

import torch
from torch import Tensor


def support(x: Tensor, power: int) -> Tensor:
    """Where sum_i max(x_i - t, 0)^power = 1 puts the threshold t: True above it.

    Sorted, the first j entries lie above t exactly if sum_{i<=j} (x_i - x_j)^power < 1, and these sums only grow.

    Args:
        x: (...,S) with the maximum 0 in each row and nothing below -1, which no threshold reaches.
        power: 1 or 2.
    """
    with torch.no_grad():
        ordered = x.sort(dim=-1, descending=True).values
        n = torch.arange(1, x.size(-1) + 1, device=x.device, dtype=x.dtype)
        total = ordered.cumsum(-1)
        if power == 1:
            sums = total - n * ordered
        else:
            sums = ordered.square().cumsum(-1) - 2 * ordered * total + n * ordered.square()
        n_kept = (sums < 1).sum(-1, keepdim=True)
        return x >= ordered.gather(-1, n_kept - 1)


def below_top(scores: Tensor) -> Tensor:
    """Scores minus their row's maximum, cut at -1; a row of -inf only is -1 throughout."""
    top = scores.detach().amax(-1, keepdim=True).clamp_min(torch.finfo(scores.dtype).min)
    return (scores - top).clamp_min(-1)
