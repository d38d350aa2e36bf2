"""A byte instead of a number."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from minitf.cache import Entries, KVCache
from minitf.errors import ConfigError

INNER = "cache.inner"  # where a config holds the settings of the cache inside
LEVELS = 127  # codes are -127 to 127: as far down as up, so that 0 is 0
SMALLEST = torch.finfo(torch.float32).tiny


class Int8(KVCache):
    """Keeps each vector as whole numbers from -127 to 127 and one scale, in any other cache.

    A vector is what one row and head has of one token. Its scale is its largest absolute value / 127, in float32, so
    it takes d + 4 bytes instead of 4 d. What comes back is code * scale in the dtype that was given. New tokens come
    back like that as well, so it does not matter in how many pieces a text is read. It holds no gradients.

    A number is off by half a scale at most, that is by 1/254 of the largest in its vector (and by the rounding of
    the dtype that comes back: in bfloat16 that can be as much again). For softmax of q.k times a factor this bounds
    each number of a head's output: it is off by at most

        max(scale of v) / 2 + tanh(e / 2) * (max(v) - min(v)),   e = factor * sum(|q|) * max(scale of k) / 2

    with the largest scales, and the extremes of this number of v, over the keys that the query reads. The first term
    is the error of a mean of values. The second: no score is off by more than e, so the ratio of new to old weights is
    the same for all keys up to exp(2 e), and such a change moves at most tanh(e / 2) of the weight between keys.

    Args:
        inner: factory of the cache that holds codes and scales, two entries for one.

    Raises:
        ConfigError: no cache inside, or one of this kind.
    """

    def __init__(self, inner: Callable[[], KVCache]) -> None:
        try:
            made = inner() if callable(inner) else None
        except ConfigError as error:  # it names its settings as if it stood alone
            raise ConfigError(str(error).replace("cache.", f"{INNER}.")) from error
        if not isinstance(made, KVCache) or isinstance(made, Int8):
            what = "another int8" if isinstance(made, Int8) else repr(inner)
            raise ConfigError(
                f"an int8 cache keeps its codes in another one, got {what}: choose cache@cache.inner=dynamic or static"
            )
        self.inner = made
        made.key = INNER
        self._dtypes: list[torch.dtype] = []

    @property
    def key(self) -> str:
        return self.inner.key

    @property
    def raw_keys(self) -> bool:
        return self.inner.raw_keys

    @property
    def in_order(self) -> bool:
        return self.inner.in_order

    @property
    def keeps(self) -> tuple[int, int] | None:
        return self.inner.keeps

    @property
    def exact(self) -> bool:
        return self.inner.exact

    @property
    def takes_back(self) -> int | None:
        return self.inner.takes_back

    @property
    def n_seen(self) -> int:
        return self.inner.n_seen

    @property
    def n_bytes(self) -> int:
        return self.inner.n_bytes

    @property
    def plain(self) -> bool:
        return self.inner.plain

    @property
    def chunk_limit(self) -> int | None:
        return self.inner.chunk_limit

    def reserve(self, n: int) -> None:
        self.inner.reserve(n)

    def update(self, *entries: Tensor, pos: Tensor, plain: bool) -> tuple[Entries, Tensor, Tensor, bool]:
        dtypes = [e.dtype for e in entries]
        if self.n_seen and dtypes != self._dtypes:
            raise ConfigError(
                f"this cache holds entries of {self._dtypes}, got {dtypes}: make new caches for another model, or call "
                "reset()"
            )
        stored = [part for e in entries for part in quantise(e)]
        held, q_pos, k_pos, plain = self.inner.update(*stored, pos=pos, plain=plain)
        self._dtypes = dtypes
        return self._restored(held), q_pos, k_pos, plain

    def read(self) -> tuple[Entries, Tensor]:
        held, pos = self.inner.read()
        return self._restored(held), pos

    def select(self, rows: Tensor) -> None:
        self.inner.select(rows)

    def crop(self, n: int) -> None:
        self.inner.crop(n)

    def reset(self) -> None:
        self.inner.reset()
        self._dtypes = []

    def for_source(self) -> Int8:
        return Int8(self.inner.for_source)

    def state_dict(self) -> dict:
        names = [str(dtype).removeprefix("torch.") for dtype in self._dtypes]
        return {"inner": self.inner.state_dict(), "dtypes": names}

    def load_state_dict(self, state: dict) -> None:
        self.inner.load_state_dict(state["inner"])
        self._dtypes = [getattr(torch, name) for name in state["dtypes"]]

    def _restored(self, held: Entries) -> Entries:
        pairs = zip(held[::2], held[1::2], self._dtypes, strict=True)
        return tuple(restore(codes, scale, dtype) for codes, scale, dtype in pairs)


@torch.no_grad()
def quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors (..., d) -> codes int8 (..., d) and scales float32 (..., 1); a vector of zeros has the codes 0."""
    x = x.float()
    scale = (x.abs().amax(-1, keepdim=True) / LEVELS).clamp_min(SMALLEST)
    return (x / scale).round().to(torch.int8), scale


def restore(codes: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """The numbers (..., d) that codes and scales stand for."""
    return (codes * scale).to(dtype)
