"""Small batches for the tests of the ring, and what it must equal: the same weights with a narrower mask."""

import functools

import parts
import torch

from minitf.blocks.mask.sliding_window import SlidingWindow
from minitf.positions import packed

LENGTH = 17
SIZES = [(3, 0, 0), (3, 2, 0), (1, 2, 0), (4, 1, 2), (5, 0, 1), (40, 3, 0)]  # window, n_sink, spare
PIECES = [(1,) * 17, (17,), (2,) * 8 + (1,), (7, 7, 3), (4, 1, 1, 1, 6, 2, 1, 1), (1, 12, 1, 3)]
SIDES = ["none", "given", "left", "right", "packed"]


def rows(side, length=LENGTH):
    """Positions of three rows; None where nothing is padded."""
    if side == "none":
        return None
    if side == "given":  # not padded, but the model is not told
        return torch.arange(length)[None]
    if side == "packed":
        return torch.stack([packed(lengths, length) for lengths in ([5, 1, 8], [length], [2, 2, 2, 2, 2])])
    return parts.padded([length, 9, 1], side)


@functools.cache
def block(*overrides):
    return parts.attention("model/attention=gqa", *overrides).double()


@functools.cache
def scheme(name):
    return parts.position(name).double()


def tokens(length=LENGTH):
    return torch.randn(3, length, 16, dtype=torch.float64)


def narrowed(made, window, n_sink, x, pos, position="rope"):
    """What `made` gives without a cache if it may read the window and the sinks alone."""
    own = made.mask
    try:
        made.mask = own & SlidingWindow(window, n_sink)
        return parts.attend(made, x, pos, scheme=scheme(position))
    finally:
        made.mask = own


def in_pieces(made, x, pos, cache, sizes, position="rope"):
    """The same, a piece after the other."""
    found, start = [], cache.n_seen
    for size in sizes:
        piece = slice(start, start + size)
        part = None if pos is None else pos[:, piece]
        found.append(parts.attend(made, x[:, piece], part, cache, scheme(position)))
        start += size
    return torch.cat(found, 1)


def close(got, wanted, pos, bound=1e-10):
    real = torch.ones(got.shape[:2]).bool() if pos is None else (pos >= 0).expand(got.shape[:2])
    torch.testing.assert_close(got[real], wanted[real], atol=bound, rtol=0)
