"""Reading: a model is given what it has not read yet of the rows so far.

It knows no cache kind and no model class: a model has `step`, `new_caches` and `position_limit`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from minitf.cache import KVCache
from minitf.errors import ConfigError
from minitf.generation.mode import evaluating
from minitf.generation.rows import Rows, right_aligned
from minitf.positions import NO_TOKEN
from minitf.tap import Tap


class Reader:
    """A model, the rows and its caches: each call gives the logits (B,V) after the last token.

    Args:
        model: anything with `step(ids, pos, caches)`; it is put into evaluation mode for the time of each call.
        ids, pos: prompts, as for `Rows`.
        memory, memory_pos: encoded source for an encoder-decoder model.
        caches: from `model.new_caches`; None reads the whole text again at each call, which is the definition.
        prefill_chunk: read the prompt in pieces of this many tokens, or fewer where a cache takes no more at a time.
        max_new_tokens: how many tokens will be appended at most.
        n_read: so many columns of `ids` are in the caches already.
        weights: names of activations to keep, see `minitf.tap`.

    Raises:
        ConfigError: as `Rows`; too few caches or too many, caches that are used, or hold other than `n_read` tokens, or
            cannot take in what will come; a name that the model does not have; a number out of range.
    """

    def __init__(
        self,
        model: nn.Module,
        ids: Tensor,
        *,
        pos: Tensor | None,
        memory: Tensor | None,
        memory_pos: Tensor | None,
        caches: Sequence[KVCache] | None,
        prefill_chunk: int | None,
        max_new_tokens: int,
        n_read: int = 0,
        weights: str | Sequence[str] = (),
    ) -> None:
        if prefill_chunk is not None and prefill_chunk < 1:
            raise ConfigError(f"prefill_chunk must be at least 1 or null, got {prefill_chunk}")
        if max_new_tokens < 0:
            raise ConfigError(f"max_new_tokens must be 0 or more, got {max_new_tokens}")
        self.rows = Rows(ids, pos, model.position_limit, _n_tokens(model))
        _check_number(model, caches)
        _check_caches(caches, ids, n_read, None if memory is None else memory.size(1))
        self._model, self._caches, self._chunk = model, caches, prefill_chunk
        self._memory, self._memory_pos = memory, memory_pos
        self._n_read = n_read
        # the first piece may begin in the middle of a text, with padding between what is read and what is not
        self._rest = _rest(ids, pos, n_read, caches[0].plain) if n_read else None
        self._say_pos = self._rest is not None and self._rest[1] is not None
        self._tap = _tap(model, weights)
        self._reserve(ids.size(1) if n_read else self.rows.n, max_new_tokens)

    def __call__(self) -> Tensor:
        with evaluating(self._model), nullcontext() if self._tap is None else self._tap:
            for ids, pos in self._pieces():
                logits = self._model.step(ids, pos, self._caches, **self._source())
        return logits

    def last_weights(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """What was asked for, of the last token alone: weights (B,H,1,S), and positions of their keys (B or 1, S)."""
        if self._tap is None:
            return {}, {}
        last = {name: value[..., -1:, :].clone() for name, value in self._tap.values.items()}
        return last, dict(self._tap.key_positions)

    def select(self, rows: Tensor) -> None:
        """Go on with the given rows of the batch, in this order (int64, repeats allowed)."""
        self.rows.select(rows)
        for cache in self._caches or ():
            cache.select(rows)
        if self._memory is not None:
            self._memory = self._memory.index_select(0, rows)
        if self._memory_pos is not None and self._memory_pos.size(0) > 1:
            self._memory_pos = self._memory_pos.index_select(0, rows)

    def _pieces(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        """What the model has not read yet."""
        moved = self.rows.move()
        if self._caches is None:
            yield self.rows.columns(0, self.rows.width)
            return
        if moved:
            for cache in self._caches:
                cache.reset()
            self._n_read, self._rest, self._say_pos = 0, None, False
        ids, pos = self._rest or self.rows.columns(self._n_read, self.rows.width)
        if pos is None and self._say_pos:
            pos = torch.arange(self.rows.n - ids.size(1), self.rows.n, device=ids.device)[None]
        done, total = 0, ids.size(1)
        while done < total:
            end = min(total, done + self._most(total - done))
            yield ids[:, done:end], None if pos is None else pos[:, done:end]
            done = end
        self._n_read, self._rest = self.rows.width, None

    def _most(self, left: int) -> int:
        """How many tokens may be read at once."""
        if left == 1:
            return 1
        limits = [self._chunk, *(cache.chunk_limit for cache in self._caches)]
        return min([left, *(max(1, limit) for limit in limits if limit is not None)])

    def _source(self) -> dict[str, Tensor | None]:
        return {} if self._memory is None else {"memory": self._memory, "memory_pos": self._memory_pos}

    def _reserve(self, n: int, max_new_tokens: int) -> None:
        """Tell the caches how many columns will come: the last token is never read, a table ends somewhere."""
        new = max(0, max_new_tokens - 1)
        if self.rows.limit is not None:
            new = min(new, self.rows.limit - max(self.rows.lengths))
        for cache in self._caches or ():
            cache.reserve(n + new)


def _rest(ids: Tensor, pos: Tensor | None, n_read: int, plain: bool) -> tuple[Tensor, Tensor | None]:
    """Tokens and positions of the columns after the first n_read, with padding moved before the tokens."""
    new = ids[:, n_read:]
    if pos is None:
        return new, None if plain else torch.arange(n_read, ids.size(1), device=ids.device)[None]
    pos = pos.expand_as(ids)[:, n_read:]
    real = pos >= 0
    if not bool(real.any(-1).all()):
        raise ConfigError(f"each row needs a token after the {n_read} that the caches have read (n_read): give one")
    return right_aligned(new, real), right_aligned(pos, real, fill=NO_TOKEN)


class _Place(KVCache):
    """Stands for a cache while a model says how many it needs."""

    def for_source(self) -> KVCache:
        return _Place()


def _check_number(model: nn.Module, caches: Sequence[KVCache] | None) -> None:
    if caches is None:
        return
    n, n_different = len(model.new_caches(_Place)), len({id(cache) for cache in caches})
    if not len(caches) == n_different == n:
        raise ConfigError(
            f"this model needs {n} caches, got {len(caches)}, {n_different} of them different: use its new_caches"
        )


def _n_tokens(model: nn.Module) -> int | None:
    return getattr(getattr(model, "embedding", None), "num_embeddings", None)


def _check_caches(caches: Sequence[KVCache] | None, ids: Tensor, n_read: int, n_source: int | None) -> None:
    if n_read == 0:
        if caches is not None and any(c.n_seen for c in caches):
            raise ConfigError(f"these caches hold {caches[0].n_seen} tokens already: make new ones or call reset()")
        return
    if not 0 < n_read < ids.size(1):
        raise ConfigError(
            f"n_read must lie between 0 and {ids.size(1) - 1}, so that a token of the prompt is left to read, "
            f"got {n_read}"
        )
    if not caches:
        raise ConfigError(f"n_read={n_read} says what the caches have read, and there are none: give them, or n_read=0")
    seen = [cache.n_seen for cache in caches]
    if seen[0] != n_read or not set(seen) <= {n_read, n_source}:
        raise ConfigError(f"the caches have seen {sorted(set(seen))} tokens, n_read says {n_read}: they must agree")


def _tap(model: nn.Module, weights: str | Sequence[str]) -> Tap | None:
    if not weights:
        return None
    try:
        return Tap(model, at=weights)
    except KeyError as error:
        raise ConfigError(error.args[0]) from None
