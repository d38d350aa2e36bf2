"""KV caches: what attention keeps of the tokens it has seen. The interface; one kind a file.

A cache does not know what it stores: any tensors with the token axis at -2, or a state of fixed size. The caller makes
one per layer and passes it down; no module keeps one. Positions travel with the entries, so nothing here counts lengths
or padding. What a mask hides is hidden by positions: a place that holds no token has position -1.

Two words, here and wherever caches are spoken of:

    entries  what a cache keeps of a token: several tensors with the token axis at -2, for example its keys and its
             values (B,G,S,d), or the one latent that both are made from. Positions are kept beside them.
    plain    nothing is padded, packed, evicted or reordered: column s is token s of its row, for every row. Then a
             causal query may read every key that is not later than it, and no mask tensor is needed. `update` also
             calls plain what has only this last property: a ring, for the one query that may read all of it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable

import torch
from torch import Tensor

from minitf.errors import ConfigError
from minitf.memory import total_memory

Entries = tuple[Tensor, ...]
MOST_BYTES = 2**48  # more than any device has; sizes beyond 2**63 are an error of another kind in torch


class KVCache:
    """The interface of every cache kind.

    Attributes:
        raw_keys: True if the cache wants keys before rotation, because it renumbers positions: for a token that comes
            alone it moves all of them by as much as the token's own, except those of the sinks.
        in_order: True if entries are given back in the order in which they came.
        keeps: (window, n_sink) if the cache forgets: each query reads the last `window` tokens, itself included, and
            the first `n_sink` of its document. None: everything is kept.
        exact: True if a model whose mask reads further than `keeps` must be refused; False: it is to read less.
        takes_back: how many of the last tokens `crop` can always take back; None for any number.
        n_seen: tokens consumed so far, padding included.
        n_held: the most tokens that later queries of a row can still read: of those seen, padding included, as many as
            `keeps` leaves. So a row with padding can have fewer; telling how many would ask a tensor for its values.
        n_bytes: memory of the stored entries, in bytes: of the tensors that exist, used or not; the positions, 8 bytes
            each, do not count.
        plain: True while all that was stored was plain.
        key: where a config holds its settings, for messages.
    """

    key: str = "cache"
    raw_keys: bool = False
    in_order: bool = True
    keeps: tuple[int, int] | None = None
    exact: bool = True
    takes_back: int | None = None
    n_seen: int
    n_bytes: int
    plain: bool

    @property
    def n_held(self) -> int:
        return self.n_seen if self.keeps is None else min(self.n_seen, sum(self.keeps))

    @property
    def chunk_limit(self) -> int | None:
        """The most tokens that the next `update` may bring; None for any number."""
        return None

    def reserve(self, n: int) -> None:
        """Be told that n tokens will come altogether, padding counted, before the first of them does.

        Raises:
            ConfigError: the cache cannot take in so many.
        """

    def update(self, *entries: Tensor, pos: Tensor, plain: bool) -> tuple[Entries, Tensor, Tensor, bool]:
        """Add the entries of T new tokens and return all that any of their queries may read.

        Args:
            entries: tensors (B,*,T,d), for example keys and values; none of a layer that keeps nothing.
            pos: (B or 1, T) positions of the new tokens.
            plain: True if the new tokens are plain: `pos` simply goes on from what was stored, without padding.

        Returns:
            entries (B,*,S,d), positions of queries (B or 1, T) and keys (B or 1, S), and whether all is plain: no
            padding, and each key is either later than the query or one that `keeps` lets it read.

        Raises:
            ConfigError: the entries do not fit what is stored, or no longer into it.
        """
        raise NotImplementedError

    def read(self) -> tuple[Entries, Tensor]:
        """Entries and key positions that are held, without adding any.

        Raises:
            ConfigError: nothing is.
        """
        raise NotImplementedError

    def select(self, rows: Tensor) -> None:
        """Keep the given rows of the batch, in this order (int64, repeats allowed)."""
        raise NotImplementedError

    def crop(self, n: int) -> None:
        """Forget all but the first n tokens of those seen, padding counted.

        Raises:
            ConfigError: fewer were seen, or what would have to be read then is no longer there.
        """
        raise NotImplementedError

    def reset(self) -> None:
        """Forget everything; the cache is as new."""
        raise NotImplementedError

    def for_source(self) -> KVCache:
        """A fresh cache like this one for the source of cross-attention: it comes at once, and is kept whole."""
        raise NotImplementedError

    def state_dict(self) -> dict:
        """Everything stored, as plain containers and tensors."""
        raise NotImplementedError

    def load_state_dict(self, state: dict) -> None:
        """Take over what `state_dict` of a cache of this kind and size gave."""
        raise NotImplementedError


def check_maker(make: object) -> None:
    """Raise ConfigError unless `make` can be called without arguments, as what gives a new cache each time."""
    ways = "a class such as Dynamic, lambda: Static(512), or build(cfg.cache)"
    if isinstance(make, KVCache):
        kind = type(make).__name__
        raise ConfigError(
            f"new_caches makes a cache for each layer, and got one {kind} cache that is made already: give what makes "
            f"them, {kind} without brackets or lambda: {kind}(...)"
        )
    if make is None:
        raise ConfigError(
            f"new_caches(None): give what makes a cache, {ways}; to do without, caches=None where they go"
        )
    if not callable(make):
        raise ConfigError(f"new_caches({make!r:.60}): give what makes a cache, {ways}")
    try:
        inspect.signature(make).bind()
    except TypeError as error:
        name = getattr(make, "__name__", repr(make))
        raise ConfigError(f"new_caches calls {name}() for each layer, {error}: give lambda: {name}(...)") from None
    except ValueError:  # something built in, which does not tell what it takes
        return


def check_fit(old: Entries, new: Entries) -> None:
    """Raise ConfigError unless the new entries differ from the stored ones in the number of tokens alone."""
    if len(old) == len(new) and all(
        a.dtype == b.dtype and a.shape[:-2] == b.shape[:-2] and a.shape[-1] == b.shape[-1]
        for a, b in zip(old, new, strict=True)
    ):
        return
    kinds = [[(*e.shape[:-2], e.shape[-1], e.dtype) for e in entries] for entries in (old, new)]
    rows = [kind[0][0] if kind else 0 for kind in kinds]
    what = f"{rows[0]} rows, got {rows[1]}" if rows[0] != rows[1] else f"entries {kinds[0]}, got {kinds[1]}"
    raise ConfigError(f"this cache holds {what}: make new caches for another batch or model, or call reset()")


def check_crop(n: int, n_seen: int) -> None:
    """Raise ConfigError unless n of the tokens seen can be what is left."""
    if not 0 <= n <= n_seen:
        raise ConfigError(f"crop({n}): this cache holds {n_seen} tokens; n must lie between 0 and that")


def check_read(pos: Tensor | None) -> None:
    """Raise ConfigError if nothing is stored."""
    if pos is None:
        raise ConfigError("this cache is empty: run the model once with it before reading from it")


def new_buffers(entries: Entries, n_places: int, way: str) -> Entries:
    """Zeros for entries like these with another number of places.

    Args:
        entries: tensors (B,*,T,d).
        n_places: takes the place of T.
        way: what to change where they are too many, for the message.

    Raises:
        ConfigError: they are larger than the memory of this machine.
    """
    shapes = [(*e.shape[:-2], n_places, e.size(-1)) for e in entries]
    if not torch.compiler.is_compiling():  # a graph cannot ask the system
        # and 8 bytes for the position of each place
        n_bytes = sum(math.prod(shape) * e.element_size() for e, shape in zip(entries, shapes, strict=True))
        n_bytes += 8 * n_places
        on_host = all(e.device.type == "cpu" for e in entries)
        if n_bytes > (total_memory() if on_host else MOST_BYTES):
            has = f"this machine has {total_memory():,.0f} in all" if on_host else "no device has as many"
            raise ConfigError(
                f"a cache of {n_places:,} places takes {n_bytes:,} bytes in each layer, {has}: {way}, or take "
                "cache=dynamic, which grows with the text"
            )
    return tuple(e.new_zeros(shape) for e, shape in zip(entries, shapes, strict=True))


def on_their_own(entries: Entries) -> Entries:
    """The same entries; copies of those that are part of a larger tensor, or the same twice, so that a cache keeps no
    more memory than it holds, and two entries never share any."""
    kept, found = set(), []
    for entry in entries:
        if torch.compiler.is_compiling():  # a graph cannot look at storages
            found.append(entry.clone())
            continue
        storage = entry.untyped_storage()
        shared = storage.data_ptr() in kept or storage.nbytes() > entry.numel() * entry.element_size()
        kept.add(storage.data_ptr())
        found.append(entry.clone() if shared else entry)
    return tuple(found)


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Memory of the tensors' storages, in bytes; one that several share counts once."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())
