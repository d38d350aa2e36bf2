"""Ways to compute attention from queries, keys and values.

`reference.attend_reference` is plain matrix algebra and the definition; `sdpa.attend_sdpa` is a fast way and must
equal it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from torch import Tensor

from minitf.blocks.mask import Mask


def unchecked(fast: Callable[..., Tensor] | None) -> Callable[..., Tensor] | None:
    """The function that a partial stands for: one made by Hydra is examined at every call, for longer than a short
    row takes."""
    if not isinstance(fast, functools.partial):
        return fast
    return functools.partial(fast.func, *fast.args, **fast.keywords) if fast.args or fast.keywords else fast.func


def dense(mask: Mask, q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """The mask as a bool tensor (B or 1, 1, T, S), True where the key may be read."""
    return mask.visible(q_pos[:, None, :, None], k_pos[:, None, None, :])


def repeat_heads(kv: Tensor, n_heads: int) -> Tensor:
    """(B,G,S,d) -> (B,H,S,d), each K/V head repeated in place: 0 0 1 1, not 0 1 0 1."""
    n_kv_heads = kv.size(1)
    return kv if n_kv_heads == n_heads else kv.repeat_interleave(n_heads // n_kv_heads, dim=1)
