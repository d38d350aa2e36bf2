"""Attention by torch's FlexAttention: blocks of the square that a mask hides are left out."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, lru_cache

import torch
import torch._dynamo
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from minitf.blocks.attend.band import attend_band
from minitf.blocks.attend.band import pays as band_pays
from minitf.blocks.mask import Mask

BLOCK = 32  # queries and keys in a block; 16 to 128 were tried, on a CPU smaller blocks win until overhead does
MIN_LENGTH = 512  # in shorter rows the whole square is as fast
MAX_SHARE = 0.25  # of the blocks; a pair costs about 3 times as much as in the whole square
_DTYPES = frozenset({torch.float32, torch.bfloat16, torch.float16})
_GRAPHS = 64  # shapes and masks compiled in one process; torch stops at 8
_failed: list[str] = []


def attend_flex(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    mask: Mask,
    q_pos: Tensor,
    k_pos: Tensor,
    plain: bool,
    bias: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """torch's FlexAttention where allowed and faster (a sparse mask, a long row, no gradient); else `attend_band`.

    The kernel is compiled at the first use of each shape and mask, which takes half a minute: meant for many passes
    over long rows. Where it cannot be compiled (no C++ compiler), one warning is given and `attend_band` computes.
    Arguments and result as for `attend_sdpa`. A mask must not be changed once it was used: its blocks are kept.

    Source: Dong et al. 2024 (Flex Attention).
    """
    if allowed(q, k, v, mask, plain, bias, dropout) and not band_pays(q, k, mask, plain, bias):
        blocks = block_mask(mask, q.size(2), q.device)
        if blocks.sparsity() >= 100 * (1 - MAX_SHARE):
            try:
                with torch._dynamo.config.patch(recompile_limit=_GRAPHS):
                    return kernel()(q, k, v, block_mask=blocks, scale=scale, enable_gqa=q.size(1) != k.size(1))
            except Exception as error:  # whatever the compiler stack raises, the other path computes the same
                _give_up(error)
    where = {"mask": mask, "q_pos": q_pos, "k_pos": k_pos, "plain": plain, "bias": bias}
    return attend_band(q, k, v, scale=scale, **where, dropout=dropout)


def allowed(q: Tensor, k: Tensor, v: Tensor, mask: Mask, plain: bool, bias: Tensor | None, dropout: float) -> bool:
    """Whether the kernel exists for these inputs and may be faster; the mask's density is looked at later.

    It has no backward pass on a CPU, and no dropout. Padded, packed and cached rows have other positions than the
    places that a kept block mask is made for.
    """
    if _failed or torch.is_grad_enabled() or torch.compiler.is_compiling() or dropout > 0 or bias is not None:
        return False
    if q.device.type != "cpu" or q.dtype not in _DTYPES or not q.dtype == k.dtype == v.dtype:
        return False
    if not plain or mask.plain_causal or mask.plain_full:
        return False
    return q.size(2) == k.size(2) >= MIN_LENGTH


@lru_cache(maxsize=16)
def block_mask(mask: Mask, length: int, device: torch.device, block: int = BLOCK) -> BlockMask:
    """The blocks of a plain row of `length` tokens that hold a visible pair; the last ones made are kept."""

    def mask_mod(b: Tensor, h: Tensor, q_place: Tensor, k_place: Tensor) -> Tensor:
        return mask.visible(q_place.long(), k_place.long())  # places of a plain row are its positions

    with torch.inference_mode(False), torch.no_grad():
        return create_block_mask(mask_mod, None, None, length, length, device=device, BLOCK_SIZE=block)


@cache
def kernel() -> Callable[..., Tensor]:
    """The compiled function; each shape and mask compiles it again."""
    return torch.compile(flex_attention, dynamic=False, fullgraph=True)


def _give_up(error: Exception) -> None:
    reason = (str(error).strip() or repr(error)).splitlines()[0]
    _failed.append(reason)
    warnings.warn(
        f"FlexAttention cannot be compiled here ({type(error).__name__}: {reason}); attention is computed by other "
        "ways, which give the same: model/attention/fast=band asks for them at once",
        stacklevel=3,
    )
