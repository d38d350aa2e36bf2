"""The generation loop: read the text so far, choose the next token, again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from minitf.cache import KVCache
from minitf.errors import ConfigError
from minitf.generation.reading import Reader
from minitf.generation.rules import Rule, apply_rules

Sampler = Callable[[Tensor, Sequence[torch.Generator]], Tensor]


@dataclass
class Step:
    """One new token per row.

    Attributes:
        ids: (B,) the tokens; `pad_id` in rows that had finished before.
        logprobs: (B,) natural log of the model's own probability of the token (before rules, temperature and filters);
            0 in rows that had finished before.
        finished: (B,) bool, True from the stop token on.
        weights: name -> (B,H,1,S) of the step that chose this token; empty unless asked for.
        key_positions: name of weights -> int64 (B or 1, S): the position, in its row or its source, of the token that
            each of the S keys is; -1: none (padding, an empty place of a cache). A cache keeps keys in its own order.
        starts: for each row the token that stands at position 0: 0, until a learned position table is outgrown.
    """

    ids: Tensor
    logprobs: Tensor
    finished: Tensor
    weights: dict[str, Tensor] = field(default_factory=dict)
    key_positions: dict[str, Tensor] = field(default_factory=dict)
    starts: Sequence[int] = ()


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
    rules: Sequence[Rule] = (),
    n_read: int = 0,
    weights: str | Sequence[str] = (),
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
        stop: token ids that end a row; the stop token itself is given out. Without any, no step waits for the device.
        pad_id: what finished rows give out.
        seeds: one seed per row for the sampler, so that a row does not depend on its neighbours; None means 0, 1, ...
        prefill_chunk: read the prompt in pieces of this many tokens, or fewer where a cache takes no more at a time;
            None reads it at once.
        rules: what changes the logits before the sampler sees them, see `minitf.generation.rules`.
        n_read: so many columns of `ids` were read before with these caches, which have seen nothing else.
        weights: names of attention weights to give out, such as "layers.*.attention.weights"; `Step` has them, and
            which token each of their keys is.

    Returns:
        An iterator of one `Step` per new token, until all rows have finished.

    Raises:
        ConfigError: at once, for ids that are no rows or not in the vocabulary, an empty prompt, other positions than
            0, 1, 2, ..., too few or used caches (or others than `n_read` says), caches that cannot take in the text, a
            prompt longer than a learned position table, or a name of weights that the model does not have.
    """
    reader = Reader(
        model,
        ids,
        pos=pos,
        memory=memory,
        memory_pos=memory_pos,
        caches=caches,
        prefill_chunk=prefill_chunk,
        max_new_tokens=max_new_tokens,
        n_read=n_read,
        weights=weights,
    )
    check_pad(pad_id)
    _check_seeds(seeds, ids.size(0))
    seeds = range(ids.size(0)) if seeds is None else seeds
    generators = [torch.Generator(ids.device).manual_seed(seed) for seed in seeds]
    return _steps(reader, sampler, generators, max_new_tokens, stop, pad_id, rules)


def _steps(
    reader: Reader,
    sampler: Sampler,
    generators: Sequence[torch.Generator],
    max_new_tokens: int,
    stop: Collection[int],
    pad_id: int,
    rules: Sequence[Rule],
) -> Iterator[Step]:
    device = reader.rows.device
    finished = torch.zeros(len(generators), dtype=torch.bool, device=device)
    stop_ids = torch.tensor(sorted(stop), dtype=torch.long, device=device)
    for _ in range(max_new_tokens):
        logits = reader()
        chosen = sampler(apply_rules(rules, logits, reader.rows.history()), generators)
        logprobs = logits.float().log_softmax(-1).gather(-1, chosen[:, None])[:, 0]
        if stop:
            chosen = torch.where(finished, pad_id, chosen)
            logprobs = torch.where(finished, 0.0, logprobs)
            finished = finished | torch.isin(chosen, stop_ids)
        starts = reader.rows.starts
        reader.rows.append(chosen)
        yield Step(chosen, logprobs, finished, *reader.last_weights(), starts)
        if stop and finished.all():
            return


def check_pad(pad_id: int) -> None:
    """Raise ConfigError unless finished rows have a token to give out."""
    if pad_id < 0:
        raise ConfigError(f"pad_id must be a token id, got {pad_id}")


def _check_seeds(seeds: Sequence[int] | None, n_rows: int) -> None:
    if seeds is None:
        return
    if not all(0 <= seed < 2**63 for seed in seeds):
        raise ConfigError(f"seeds must be whole numbers from 0 to 2**63 - 1, got {list(seeds)}")
    if len(seeds) != n_rows:
        raise ConfigError(f"{n_rows} rows need as many seeds, got {len(seeds)}")
