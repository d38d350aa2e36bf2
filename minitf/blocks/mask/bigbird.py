"""Near, global and random blocks."""

from __future__ import annotations

from typing import TypeVar

from torch import Tensor

from minitf.blocks.checks import check_positive
from minitf.blocks.mask import Mask
from minitf.errors import ConfigError

_IntOrTensor = TypeVar("_IntOrTensor", int, Tensor)


class BigBird(Mask):
    """A window of blocks, the first tokens for all, and random blocks: a constant number of keys a row.

    A token reads the `n_window` blocks around its own, the first `n_global` tokens (which read, and are read by, all),
    and `n_random` key blocks. Those are drawn, one from each of n_random equal stretches of the first `length` places,
    by arithmetic on (seed, query block, which one): elementwise, the same on every device and in rows of any length.

    Args:
        block: tokens in a block.
        n_window: blocks in the window, an odd number: as many on either side.
        n_global: first tokens that read all and are read by all; 0 for none.
        n_random: random key blocks per query block; 0 for none. They may fall on blocks that are visible anyway.
        length: places among which random blocks are drawn: the length of the documents.
        seed: another one draws other blocks.

    Raises:
        ConfigError: sizes that mean nothing or do not fit.

    Source: Zaheer et al. 2020 (BigBird), section 2, ITC: global tokens are taken from the sequence.
    """

    def __init__(self, block: int, n_window: int, n_global: int, n_random: int, length: int, seed: int) -> None:
        check_positive(block=block, n_window=n_window, length=length)
        for name, value in {"n_global": n_global, "n_random": n_random, "seed": seed}.items():
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
                raise ConfigError(f"{name} must be a whole number, 0 or more, got {value!r}")
        if n_window % 2 == 0:
            raise ConfigError(
                f"n_window ({n_window}) counts the own block and as many on either side: make it {n_window + 1}, or "
                f"{n_window - 1}"
            )
        n_blocks = -(-length // block)
        if n_random > n_blocks:
            raise ConfigError(
                f"{n_random} random blocks cannot be drawn from the {n_blocks} blocks of {block} tokens in length "
                f"{length}: choose fewer (n_random), smaller blocks, or a greater length"
            )
        self.block, self.n_window, self.n_global = block, n_window, n_global
        self.n_random, self.length, self.seed = n_random, length, seed
        self.n_blocks = n_blocks
        self.probe = length
        if not n_global and not n_random:
            self.reach = ((n_window // 2 + 1) * block - 1,) * 2

    def random_block(self, q_block: Tensor, which: int) -> Tensor:
        """The random key block number `which` of each query block; int64 in and out."""
        first = which * self.n_blocks // self.n_random
        end = (which + 1) * self.n_blocks // self.n_random
        key = _mix(_mix(self.seed) + which)
        return first + _mix(q_block + key) % (end - first)

    def rule(self, q_off: Tensor, k_off: Tensor) -> Tensor:
        q_block, k_block = q_off // self.block, k_off // self.block
        seen = (q_block - k_block).abs() <= self.n_window // 2
        seen = seen | (k_off < self.n_global) | (q_off < self.n_global)
        for which in range(self.n_random):
            seen = seen | (k_block == self.random_block(q_block, which))
        return seen


def _mix(x: _IntOrTensor) -> _IntOrTensor:
    """A number below 2**31 in which every bit of `x` has a say; no step exceeds 63 bits, so nothing wraps."""
    x = (x ^ (x >> 31)) & 0x7FFFFFFF
    for _ in range(2):
        x = ((x ^ (x >> 16)) * 0x45D9F3B) & 0x7FFFFFFF
    return x ^ (x >> 16)
