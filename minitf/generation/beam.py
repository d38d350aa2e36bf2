"""Beam search: go on with the few most likely rows at once, and keep the best that end."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from minitf.cache import KVCache
from minitf.errors import ConfigError
from minitf.generation.generate import check_pad
from minitf.generation.reading import Reader
from minitf.generation.rules import Rule, apply_rules
from minitf.memory import total_memory

MOST_PENALTY = 10.0  # length ** 10 of any text is a number that can be read


@dataclass(frozen=True)
class Hypothesis:
    """One way to go on.

    Attributes:
        ids: the new tokens, the stop token included.
        logprobs: natural log of the model's own probability of each.
        score: sum(logprobs) / len(ids) ** length_penalty.
        finished: whether it ends with a stop token; False: it reached max_new_tokens.
    """

    ids: list[int]
    logprobs: list[float]
    score: float
    finished: bool


def beam_search(
    model: nn.Module,
    ids: Tensor,
    *,
    n_beams: int,
    n_best: int = 1,
    length_penalty: float = 1.0,
    max_new_tokens: int,
    stop: Collection[int] = (),
    pos: Tensor | None = None,
    memory: Tensor | None = None,
    memory_pos: Tensor | None = None,
    caches: Sequence[KVCache] | None = None,
    rules: Sequence[Rule] = (),
    pad_id: int = 0,
    prefill_chunk: int | None = None,
) -> list[list[Hypothesis]]:
    """The best continuations of each row that a beam of `n_beams` rows finds.

    At each step the candidates are all beams with any next token, in the order of their summed log-probabilities. Of
    the first `n_beams` of them, those that end with a stop token are hypotheses; the best `n_beams` that do not end are
    the next beams. After `max_new_tokens` the first `n_beams` candidates are hypotheses, ended or not. The score of a
    hypothesis is the sum divided by length ** length_penalty, where the length counts new tokens with the stop token:
    as in transformers, where early_stopping="never" is this search.

    A row ends early when none of its beams can do better than the worst of the `n_best` that it would return. Sums only
    fall, so from a sum s no score can come that is above s / n ** length_penalty, with the length n that serves s best:
    max_new_tokens for a positive penalty, one token more than now otherwise. With one beam it ends at the first stop
    token, since there is no other to go on with: that is greedy decoding.

    Rules say which tokens the beams go on with, as for the loop of `generate`; each beam has its own history. They
    change the order of candidates; logprobs and scores stay those of the model.

    Args:
        model, ids, pos, memory, memory_pos, prefill_chunk: as for `generate`.
        n_beams: rows that are gone on with, for each row of `ids`.
        n_best: hypotheses to return for each row, at most n_beams.
        length_penalty: 0 compares sums, 1 means per token; positive prefers long hypotheses.
        max_new_tokens: length of a hypothesis at most, at least 1.
        stop: token ids that end a hypothesis.
        caches: fresh caches from `model.new_caches`, of any kind; None reads the whole text at each step.
        rules: what changes the logits before candidates are made.
        pad_id: what is read in beams that are done with; it changes nothing.

    Returns:
        For each row its hypotheses, best first: n_best, or fewer where there are not as many.

    Raises:
        ConfigError: a number out of range; as `generate`.
    """
    check_beams(n_beams, n_best, length_penalty, max_new_tokens)
    check_pad(pad_id)
    reader = Reader(
        model,
        ids,
        pos=pos,
        memory=memory,
        memory_pos=memory_pos,
        caches=caches,
        prefill_chunk=prefill_chunk,
        max_new_tokens=max_new_tokens,
    )
    searches = [_Search(n_beams, n_best, length_penalty, max_new_tokens, frozenset(stop)) for _ in range(ids.size(0))]
    for step in range(max_new_tokens):
        logits = reader()
        ruled = apply_rules(rules, logits, reader.rows.history())
        if step == 0:
            # the prompt is read once for all beams of a row
            _check_memory(n_beams, logits, caches or ())
            rows = torch.arange(ids.size(0), device=ids.device).repeat_interleave(n_beams)
            logits, ruled = logits[rows], ruled[rows]
            reader.select(rows)
        _candidates(searches, logits, ruled)
        if all(search.done for search in searches):
            break
        parents = [i * n_beams + beam.parent for i, search in enumerate(searches) for beam in search.filled()]
        if parents != list(range(len(parents))):
            reader.select(torch.tensor(parents, device=ids.device))
        last = [beam.ids[-1] if beam.ids else pad_id for search in searches for beam in search.filled()]
        reader.rows.append(torch.tensor(last, device=ids.device))
    return [search.best for search in searches]


@dataclass(frozen=True)
class _Beam:
    """A row that is gone on with: its tokens, what rules make of its sum, and which earlier beam it comes from."""

    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    rank: float = 0.0
    parent: int = 0


class _Search:
    """The beams and the best hypotheses of one row."""

    def __init__(
        self, n_beams: int, n_best: int, length_penalty: float, max_new_tokens: int, stop: frozenset[int]
    ) -> None:
        self.n_beams, self.n_best, self.stop = n_beams, n_best, stop
        self.length_penalty, self.max_new_tokens = length_penalty, max_new_tokens
        self.beams = [_Beam()]
        self.best: list[Hypothesis] = []

    @property
    def done(self) -> bool:
        return not self.beams

    def filled(self) -> list[_Beam]:
        """As many beams as there are rows of the batch for them; those too many are never gone on with."""
        return self.beams + [_Beam(rank=float("-inf"))] * (self.n_beams - len(self.beams))

    def ranks(self) -> list[float]:
        """What candidates of each row of the batch start from."""
        return [beam.rank for beam in self.filled()]

    def advance(self, ranks: list[float], parents: list[int], tokens: list[int], logprobs: list[float]) -> None:
        """Go on with the best of these candidates, which come best first."""
        going = []
        for place, (rank, parent, token, logprob) in enumerate(zip(ranks, parents, tokens, logprobs, strict=True)):
            if rank == float("-inf"):
                break
            old = self.beams[parent]
            new = replace(old, ids=(*old.ids, token), logprobs=(*old.logprobs, logprob), rank=rank, parent=parent)
            ends = token in self.stop
            if place < self.n_beams and (ends or len(new.ids) == self.max_new_tokens):
                self._keep(new, ends)
            elif not ends:
                going.append(new)
        self.beams = going[: self.n_beams]
        if not any(self._can_do_better(beam) for beam in self.beams):
            self.beams = []

    def _keep(self, beam: _Beam, finished: bool) -> None:
        score = self._score(sum(beam.logprobs), len(beam.ids))
        self.best.append(Hypothesis(list(beam.ids), list(beam.logprobs), score, finished))
        self.best = sorted(self.best, key=lambda hypothesis: -hypothesis.score)[: self.n_best]

    def _score(self, total: float, length: int) -> float:
        return total / length**self.length_penalty

    def _can_do_better(self, beam: _Beam) -> bool:
        if len(beam.ids) == self.max_new_tokens:
            return False
        length = self.max_new_tokens if self.length_penalty > 0 else len(beam.ids) + 1
        return len(self.best) < self.n_best or self._score(sum(beam.logprobs), length) > self.best[-1].score


def _candidates(searches: Sequence[_Search], logits: Tensor, ruled: Tensor) -> None:
    """Give each search its best candidates: so many that enough are left whichever of them end."""
    n_beams, n_tokens = searches[0].n_beams, logits.size(-1)
    logprobs = logits.double().log_softmax(-1)
    # rules are not made up for by the other tokens: those keep the log-probability that the model gives them
    ranks = logprobs if ruled is logits else ruled.double() - logits.double().logsumexp(-1, keepdim=True)
    start = torch.tensor([search.ranks() for search in searches], dtype=torch.float64, device=logits.device)
    totals = (start.view(-1, 1) + ranks).view(len(searches), -1)
    if n_beams == 1:
        # the first of several that are as likely, as greedy decoding does; where it ends there is no other
        chosen = totals.argmax(-1, keepdim=True)
    else:
        chosen = totals.topk(min(n_beams * (1 + len(searches[0].stop)), totals.size(-1)), dim=-1).indices
    found = [totals.gather(-1, chosen), logprobs.view(len(searches), -1).gather(-1, chosen), chosen]
    for search, row_ranks, row_logprobs, places in zip(searches, *(part.tolist() for part in found), strict=True):
        if not search.done:
            search.advance(row_ranks, [p // n_tokens for p in places], [p % n_tokens for p in places], row_logprobs)


def _check_memory(n_beams: int, logits: Tensor, caches: Sequence[KVCache]) -> None:
    """Raise ConfigError if what each beam needs is together more than the memory of this machine."""
    # the logits as they are, and three times in float64: log-probabilities, ranks and sums
    n_bytes = logits.numel() * (logits.element_size() + 3 * 8) + sum(cache.n_bytes for cache in caches)
    if logits.device.type == "cpu" and n_beams * n_bytes > total_memory():
        raise ConfigError(
            f"{n_beams:,} beams take {n_beams * n_bytes:,} bytes at the first step, this machine has "
            f"{total_memory():,.0f} in all: search with fewer (beams, n_beams), or for fewer prompts at once"
        )


def check_beams(n_beams: int, n_best: int, length_penalty: float, max_new_tokens: int) -> None:
    """Raise ConfigError for a number out of range."""
    for name, value in (("n_beams", n_beams), ("n_best", n_best), ("max_new_tokens", max_new_tokens)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(f"{name} must be a whole number of at least 1, got {value!r}")
    if n_best > n_beams:
        raise ConfigError(f"{n_beams} beams cannot give {n_best} hypotheses: raise n_beams, or lower n_best")
    # the second: length ** penalty must be a float, which end at e to the 709
    if not (abs(length_penalty) <= MOST_PENALTY and abs(length_penalty) * math.log(max_new_tokens + 1) < 600):
        raise ConfigError(
            f"length_penalty must lie between -{MOST_PENALTY:g} and {MOST_PENALTY:g}, got {length_penalty}: 0 compares "
            "sums, 1 means per token, and 2 already prefers long texts much"
        )
