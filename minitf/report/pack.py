"""Attention weights as a page holds them: 16 bit a weight, and of a causal map the lower triangle alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

TOP = 65535
ROUNDING = 1e-5  # weights of a half-precision run may leave 0..1, or a closed place, by so much
Array = Any  # a numpy array or a torch tensor


def to_numpy(array: Array) -> np.ndarray:
    """An array of numpy from one of torch or of numpy, or from lists.

    Args:
        array: any of them; on any device.
    """
    if hasattr(array, "detach"):
        array = array.detach().cpu()
        array = array.float() if array.is_floating_point() else array
    return np.asarray(array)


def quantized(values: Array) -> np.ndarray:
    """Values of 0..1 as uint16; the error is at most 7.7e-6.

    Args:
        values: any shape.

    Raises:
        ValueError: values outside 0..1, or not finite.
    """
    found = to_numpy(values).astype(np.float64)
    if found.size and not (found.min() >= -ROUNDING and found.max() <= 1 + ROUNDING):  # so is nan caught
        raise ValueError(f"a page shows values of 0..1, got {found.min():.4g}..{found.max():.4g}")
    return np.rint(found.clip(0, 1) * TOP).astype(np.uint16)


def is_causal(visible: np.ndarray) -> bool:
    """True if query t sees the keys 0..t, and as many keys as queries are there, in every layer.

    Args:
        visible: bool (L,T,S).
    """
    n_queries, n_keys = visible.shape[1:]
    return n_queries == n_keys and bool((visible == np.tri(n_queries, dtype=bool)).all())


def pack(layers: Sequence[Array], visible: np.ndarray) -> np.ndarray:
    """All maps of one example behind each other: layer by layer, head by head, row by row.

    Args:
        layers: per layer the weights (H,T,S).
        visible: bool (L,T,S) or (1,T,S). Of a causal one only the open triangle is kept.

    Raises:
        ValueError: a weight outside 0..1, or one that is not 0 although its place is closed.
    """
    triangle = is_causal(visible)
    parts = []
    for i, weights in enumerate(layers):
        found = to_numpy(weights)
        open_ = visible[min(i, len(visible) - 1)]
        closed = found[:, ~open_]
        if closed.size and not np.abs(closed).max() <= ROUNDING:
            raise ValueError(f"layer {i} of the shown ones has a weight of {closed.max():.4g} where `visible` is False")
        parts.append(quantized(found[:, open_] if triangle else found).reshape(-1))
    return np.concatenate(parts)


def unpack(packed: np.ndarray, n_heads: Sequence[int], visible: np.ndarray) -> list[np.ndarray]:
    """What `pack` was given, as float64 (H,T,S) per layer, as exact as 16 bit are.

    Args:
        packed: of `pack`.
        n_heads: of every layer.
        visible: as given to `pack`.
    """
    n_queries, n_keys = visible.shape[1:]
    triangle = is_causal(visible)
    size = int(visible[0].sum()) if triangle else n_queries * n_keys
    layers, start = [], 0
    for n in n_heads:
        flat = packed[start : start + n * size].reshape(n, size) / TOP
        start += n * size
        full = np.zeros((n, n_queries, n_keys))
        if triangle:
            full[:, visible[0]] = flat
        else:
            full = flat.reshape(n, n_queries, n_keys)
        layers.append(full)
    return layers
