"""The generation loop: read the text so far, choose the next token, again.

It knows no cache kind and no model class: a model has `step`, `new_caches` and `position_limit`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from minitf.cache import KVCache
from minitf.errors import ConfigError
from minitf.positions import from_real

Sampler = Callable[[Tensor, Sequence[torch.Generator]], Tensor]


@dataclass
class Step:
    """One new token per row.

    Attributes:
        ids: (B,) the tokens; `pad_id` in rows that had finished before.
        logprobs: (B,) natural log of the model's own probability of the token (before temperature and filters); 0 in
            rows that had finished before.
        finished: (B,) bool, True from the stop token on.
    """

    ids: Tensor
    logprobs: Tensor
    finished: Tensor


def generate(
    model: nn.Module,
    ids: Tensor,
    *,
    pos: Tensor | None = None,
    memory: Tensor | None = None,
    memory_pos: Tensor | None = None,
    caches: Sequence[KVCache] | None = None,
    sampler: Sampler,
    max_new_tokens: int,
    stop: Collection[int] = (),
    pad_id: int = 0,
    seeds: Sequence[int] | None = None,
    prefill_chunk: int | None = None,
) -> Iterator[Step]:
    """Extend each row of `ids` by up to `max_new_tokens` tokens.

    A learned position table ends somewhere. When the text outgrows it, the model reads the last part of the text again
    from place 0: the window moves on by half a table at a time. The rule depends on the length of the row alone, so the
    text is the same with and without a cache, in any batch.

    Args:
        model: anything with `step(ids, pos, caches)`; it is put into evaluation mode for the time of each step.
        ids: (B,T) prompts, at least one token each.
        pos: (B,T) positions of padded prompts, -1 at padding on either side; None if nothing is padded.
        memory, memory_pos: encoded source for an encoder-decoder model.
        caches: fresh caches from `model.new_caches`; None reads the whole text again at each step, which is the
            definition that cached generation must equal.
        sampler: (logits (B,V), generators) -> ids (B,).
        max_new_tokens: number of steps at most.
        stop: token ids that end a row; the stop token itself is given out.
        pad_id: what finished rows give out.
        seeds: one seed per row for the sampler, so that a row does not depend on its neighbours; None means 0, 1, ...
        prefill_chunk: read the prompt in pieces of this many tokens; None reads it at once.

    Returns:
        An iterator of one `Step` per new token, until all rows have finished.

    Raises:
        ConfigError: at once, for an empty prompt, other positions than 0, 1, 2, ..., used caches, or a prompt longer
            than a learned position table.
    """
    text = _Text(ids, pos, model.position_limit)
    _check(text, caches, max_new_tokens, prefill_chunk, seeds, pad_id)
    source = {} if memory is None else {"memory": memory, "memory_pos": memory_pos}
    read = partial(_read, model, text, caches, prefill_chunk, source)
    generators = [torch.Generator(ids.device).manual_seed(s) for s in (seeds or range(ids.size(0)))]
    return _steps(read, text, sampler, generators, max_new_tokens, stop, pad_id)


def _steps(
    read: Callable[[], Tensor],
    text: _Text,
    sampler: Sampler,
    generators: Sequence[torch.Generator],
    max_new_tokens: int,
    stop: Collection[int],
    pad_id: int,
) -> Iterator[Step]:
    finished = torch.zeros(text.ids.size(0), dtype=torch.bool, device=text.ids.device)
    stop_ids = torch.tensor(sorted(stop), dtype=torch.long, device=text.ids.device)
    for _ in range(max_new_tokens):
        logits = read()
        chosen = sampler(logits, generators)
        logprobs = logits.float().log_softmax(-1).gather(-1, chosen[:, None])[:, 0]
        chosen = torch.where(finished, pad_id, chosen)
        logprobs = torch.where(finished, 0.0, logprobs)
        text.append(chosen)
        finished = finished | torch.isin(chosen, stop_ids)
        yield Step(chosen, logprobs, finished)
        if finished.all():
            return


class _Text:
    """The rows so far, left-padded, and the part of them that the model's position table can hold.

    Attributes:
        ids: (B,N) tokens.
        lengths: real tokens of each row.
        read: number of columns that the caches have read of the present window.
    """

    def __init__(self, ids: Tensor, pos: Tensor | None, limit: int | None) -> None:
        self.ids, self.limit, self.read = ids, limit, 0
        self.lengths = [ids.size(1)] * ids.size(0)
        if pos is not None:
            self._pad_left(pos)
        self._starts = [0] * ids.size(0)

    def append(self, ids: Tensor) -> None:
        self.ids = torch.cat([self.ids, ids[:, None]], dim=1)
        self.lengths = [n + 1 for n in self.lengths]

    def moved(self) -> bool:
        """Move the windows on if a row has outgrown the table; True if any did."""
        starts = [window_start(n, self.limit) for n in self.lengths]
        moved, self._starts = starts != self._starts, starts
        return moved

    def window(self) -> tuple[Tensor, Tensor | None]:
        """Tokens (B,W) and positions (B,W) of what is read; positions are None if nothing is padded."""
        held = [n - s for n, s in zip(self.lengths, self._starts, strict=True)]
        ids = self.ids[:, -max(held) :]
        if min(held) == max(held):
            return ids, None
        columns = torch.arange(max(held), device=ids.device)
        return ids, from_real(columns >= max(held) - torch.tensor(held, device=ids.device)[:, None])

    def _pad_left(self, pos: Tensor) -> None:
        pos = pos.expand_as(self.ids)
        real = pos >= 0
        if not torch.equal(pos, from_real(real)):
            raise ConfigError(
                "positions of a prompt must count 0, 1, 2, ... over the real tokens of each row, -1 elsewhere"
            )
        self.lengths = real.sum(-1).tolist()
        width = max(self.lengths)
        rows = [row[keep] for row, keep in zip(self.ids, real, strict=True)]
        self.ids = torch.stack([torch.nn.functional.pad(r, (width - len(r), 0)) for r in rows])


def window_start(n: int, limit: int | None) -> int:
    """First token of the window that is read of a text of n tokens: it moves on by half a table at a time."""
    if limit is None or n <= limit:
        return 0
    stride = max(1, limit // 2)
    return stride * -(-(n - limit) // stride)


@torch.no_grad()
def _read(
    model: nn.Module, text: _Text, caches: Sequence[KVCache] | None, chunk: int | None, source: dict[str, Tensor | None]
) -> Tensor:
    """Logits (B,V) after the last token; with caches only what they have not read yet goes through the model."""
    training = [module for module in model.modules() if module.training] if model.training else []
    if training:
        model.eval()
    try:
        moved = text.moved()
        ids, pos = text.window()
        if caches is None:
            return model.step(ids, pos, **source)
        if moved:
            for cache in caches:
                cache.reset()
            text.read = 0
        for start in range(text.read, ids.size(1), chunk or ids.size(1)):
            piece = slice(start, start + (chunk or ids.size(1)))
            logits = model.step(ids[:, piece], None if pos is None else pos[:, piece], caches, **source)
        text.read = ids.size(1)
        return logits
    finally:
        for module in training:
            module.training = True


def _check(
    text: _Text,
    caches: Sequence[KVCache] | None,
    max_new_tokens: int,
    chunk: int | None,
    seeds: Sequence[int] | None,
    pad_id: int,
) -> None:
    if min(text.lengths) < 1:
        raise ConfigError("a prompt is empty: give at least one token, for example the tokenizer's bos_id")
    if text.limit is not None and max(text.lengths) > text.limit:
        raise ConfigError(
            f"the prompt has {max(text.lengths)} tokens, the model's learned position table {text.limit} places: "
            "shorten the prompt, or train with a longer data.seq_len or model/position=rope, sinusoidal or none"
        )
    if caches is not None and any(c.n_seen for c in caches):
        raise ConfigError(f"these caches hold {caches[0].n_seen} tokens already: make new ones or call reset()")
    if max_new_tokens < 0:
        raise ConfigError(f"max_new_tokens must be 0 or more, got {max_new_tokens}")
    if chunk is not None and chunk < 1:
        raise ConfigError(f"prefill_chunk must be at least 1 or null, got {chunk}")
    if pad_id < 0:
        raise ConfigError(f"pad_id must be a token id, got {pad_id}")
    if seeds is not None and not all(0 <= seed < 2**63 for seed in seeds):
        raise ConfigError(f"seeds must be whole numbers from 0 to 2**63 - 1, got {list(seeds)}")
    if seeds is not None and len(seeds) != len(text.lengths):
        raise ConfigError(f"{len(text.lengths)} rows need as many seeds, got {len(seeds)}")
