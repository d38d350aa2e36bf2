"""Speculative decoding: a small model drafts a few tokens, the large one reads them all in one pass.

What comes out follows the distribution of the large model alone, whatever the draft says; a bad draft costs time only.
Source: Leviathan, Kalman and Matias 2023, algorithm 1; Chen et al. 2023.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import torch
from torch import Tensor, nn

from minitf.cache import KVCache
from minitf.errors import ConfigError
from minitf.generation.generate import Sampler, Step
from minitf.generation.mode import evaluating


def speculate(
    model: nn.Module,
    draft: nn.Module,
    ids: Tensor,
    *,
    sampler: Sampler,
    max_new_tokens: int,
    stop: Collection[int] = (),
    n_draft: int = 4,
    caches: Sequence[KVCache] | None,
    draft_caches: Sequence[KVCache] | None,
    seed: int = 0,
) -> Speculation:
    """Extend one row by up to `max_new_tokens` tokens, as `generate` does, in fewer passes of `model`.

    With a sampler of temperature 0 the text is that of `generate`. Otherwise each text has the probability that it has
    there, but a seed gives another one.

    Args:
        model: the model whose text it is, one like `Decoder`.
        draft: a smaller one of the same vocabulary.
        ids: int64 (1,T), the prompt.
        sampler: has `probs(logits (B,V)) -> (B,V)`; both models draw by it.
        max_new_tokens: tokens to add at most.
        stop: ids that end the text; the stop token itself is given out.
        n_draft: tokens that are drafted before the model reads them.
        caches, draft_caches: fresh ones of the two models, or None to read the whole text again at each pass. They
            are cropped when a drafted token is refused. Once the iterator has ended, the model's hold all but the last
            token, the draft's at most that.
        seed: decides the text, together with everything above.

    Returns:
        An iterator of one `Step` per new token; it counts how many drafted tokens were accepted.

    Raises:
        ConfigError: at once, for vocabularies that differ, a text longer than a learned position table, a prompt that
            is not one row, used caches or such as cannot be cropped so far, a sampler without `probs`.
    """
    for name, one in (("model", model), ("draft", draft)):
        _check_model(name, one, ids.size(-1), max_new_tokens)
    _check_request(ids, sampler, max_new_tokens, n_draft, seed)
    sizes = [one.embedding.num_embeddings for one in (model, draft)]
    if sizes[0] != sizes[1]:
        raise ConfigError(
            f"the model knows {sizes[0]} tokens, the draft {sizes[1]}: a draft must have been trained with the same "
            "tokenizer as the model"
        )
    readers = [_Reader(model, caches, n_draft), _Reader(draft, draft_caches, n_draft)]
    for reader in readers:
        reader.reserve(ids.size(1) + max_new_tokens - 1)  # the last token is never read
    generator = torch.Generator(ids.device).manual_seed(seed)
    return Speculation(*readers, ids, sampler, max_new_tokens, stop, n_draft, generator)


class Speculation:
    """The new tokens, one `Step` each, and how well they were drafted.

    Attributes:
        n_passes: how often the model itself was run.
        n_drafted: tokens that the draft proposed.
        n_accepted: those of them that the model took over.
    """

    def __init__(
        self,
        target: _Reader,
        draft: _Reader,
        ids: Tensor,
        sampler: Sampler,
        max_new_tokens: int,
        stop: Collection[int],
        n_draft: int,
        generator: torch.Generator,
    ) -> None:
        self.n_passes = self.n_drafted = self.n_accepted = 0
        self._target, self._draft, self._ids = target, draft, ids
        self._sampler, self._generator = sampler, generator
        self._end, self._stop, self._n_draft = ids.size(1) + max_new_tokens, frozenset(stop), n_draft
        self._steps = self._all_steps()

    def __iter__(self) -> Speculation:
        return self

    def __next__(self) -> Step:
        return next(self._steps)

    @property
    def acceptance(self) -> float:
        """Share of the drafted tokens that were accepted; 0 before any was."""
        return self.n_accepted / max(1, self.n_drafted)

    def _all_steps(self) -> Iterator[Step]:
        finished = False
        while not finished and (left := self._end - self._ids.size(1)) > 0:
            # each pass gives one token more than were drafted
            new, logprobs = self._round(min(self._n_draft, left - 1))
            finished = int(new[-1]) in self._stop
            for i in range(len(new)):
                last = torch.tensor([finished and i == len(new) - 1], device=new.device)
                yield Step(new[i : i + 1], logprobs[i : i + 1], last)

    def _round(self, n: int) -> tuple[Tensor, Tensor]:
        """Draft n tokens, read them, keep what is accepted and one more: ids (1..n+1,), their log probabilities."""
        with evaluating(self._target.model, self._draft.model):
            text, q = self._ids, []
            for _ in range(n):
                q.append(self._sampler.probs(self._draft.logits(text, 1)))
                text = torch.cat([text, torch.multinomial(q[-1], 1, generator=self._generator)], 1)
            logits = self._target.logits(text, n + 1)  # (n+1,V)
            drafted = text[0, self._ids.size(1) :]
            new, n_accepted = self._choose(self._sampler.probs(logits), q, drafted)
            ends = [i for i, token in enumerate(new.tolist()) if token in self._stop]
            new = new[: ends[0] + 1] if ends else new
            self._ids = torch.cat([self._ids, new[None]], 1)
            for reader in (self._target, self._draft):
                reader.forget(self._ids.size(1) - 1)
        self.n_passes, self.n_drafted = self.n_passes + 1, self.n_drafted + n
        self.n_accepted += min(n_accepted, len(new))
        return new, logits[: len(new)].float().log_softmax(-1).gather(-1, new[:, None])[:, 0]

    def _choose(self, p: Tensor, q: list[Tensor], drafted: Tensor) -> tuple[Tensor, int]:
        """The accepted ones of n drafted tokens and one more, and how many were accepted.

        Args:
            p: (n+1,V), what the model's next token follows after each of them.
            q: n times (1,V), what they were drawn from.
            drafted: (n,).
        """
        drawn = drafted[:, None]
        taken = p[:-1].gather(-1, drawn) / torch.cat([*q, p[:0]]).gather(-1, drawn)
        accepted = torch.bernoulli(taken.clamp(max=1), generator=self._generator)
        n = int(accepted.cumprod(0).sum())
        rest = p[n]
        if n < len(drafted):
            missing = (p[n] - q[n][0]).clamp(min=0)
            # rounding can leave nothing where p and q are one distribution; then p is what is left
            rest = torch.where(missing.sum() > 0, missing, rest)
        return torch.cat([drafted[:n], torch.multinomial(rest, 1, generator=self._generator)]), n


class _Reader:
    """A model and what it has read."""

    def __init__(self, model: nn.Module, caches: Sequence[KVCache] | None, n_draft: int) -> None:
        self.model, self._caches = model, caches
        for cache in caches or ():
            if cache.n_seen:
                raise ConfigError(f"these caches hold {cache.n_seen} tokens already: make new ones or call reset()")
            # it could take back fewer, and would say so only once it is full
            if cache.takes_back is not None and cache.takes_back < n_draft:
                raise ConfigError(
                    f"speculative decoding takes back up to n_draft ({n_draft}) tokens, this {type(cache).__name__} "
                    f"cache {cache.takes_back} at most: draft fewer, give a window spare={n_draft - 1} "
                    f"({cache.key}.spare), or take cache=dynamic"
                )

    def reserve(self, n: int) -> None:
        for cache in self._caches or ():
            cache.reserve(n)

    def logits(self, ids: Tensor, n: int) -> Tensor:
        """(n,V), after each of the last n tokens of (1,N); with caches only what they have not read is run."""
        if self._caches is None:
            return self.model.head(self.model.hidden(ids)[:, -n:])[0]
        ids, hidden = ids[:, self._caches[0].n_seen :], []
        while ids.size(1):
            limits = [c.chunk_limit for c in self._caches]
            size = min([ids.size(1), *(limit for limit in limits if limit is not None)])
            hidden.append(self.model.hidden(ids[:, :size], None, self._caches)[:, -n:])
            ids = ids[:, size:]
        return self.model.head(torch.cat(hidden, 1)[:, -n:])[0]

    def forget(self, n: int) -> None:
        """All but the first n tokens."""
        for cache in self._caches or ():
            if cache.n_seen > n:
                try:
                    cache.crop(n)
                except ConfigError as error:
                    raise ConfigError(
                        f"speculative decoding must take back refused tokens, and this cache cannot: {error}"
                    ) from error


def _check_model(name: str, model: nn.Module, n_prompt: int, max_new_tokens: int) -> None:
    if hasattr(model, "encode"):
        raise ConfigError(
            f"the {name} is a {type(model).__name__}, which reads a source: speculative decoding is for models that "
            "go on with a text, such as model=gpt_tiny"
        )
    limit = model.position_limit
    if limit is not None and n_prompt + max_new_tokens - 1 > limit:  # the last token is never read
        raise ConfigError(
            f"a prompt of {n_prompt} tokens and {max_new_tokens} new ones outgrow the learned position table of the "
            f"{name}, {limit} places: ask for at most {max(0, limit - n_prompt + 1)} new tokens, decode without a "
            "draft, or train with model/position=rope, sinusoidal or none"
        )


def _check_request(ids: Tensor, sampler: Sampler, max_new_tokens: int, n_draft: int, seed: int) -> None:
    if ids.dim() != 2 or ids.size(0) != 1:
        raise ConfigError(
            f"speculative decoding takes one row (1,T), got {tuple(ids.shape)}: give one prompt at a time"
        )
    if ids.size(1) < 1:
        raise ConfigError("the prompt is empty: give at least one token, for example the tokenizer's bos_id")
    if not hasattr(sampler, "probs"):
        raise ConfigError(
            f"{type(sampler).__name__} cannot tell what it draws from: speculative decoding needs a sampler with probs"
        )
    if max_new_tokens < 0:
        raise ConfigError(f"max_new_tokens must be 0 or more, got {max_new_tokens}")
    if not isinstance(n_draft, int) or isinstance(n_draft, bool) or n_draft < 1:
        raise ConfigError(f"n_draft must be a whole number of at least 1, got {n_draft!r}")
    if not 0 <= seed < 2**63:
        raise ConfigError(f"seed must be a whole number from 0 to 2**63 - 1, got {seed}")
