"""Rules: what is changed in the logits, given the row so far, before a token is chosen.

rule(logits (B,V), history) -> logits (B,V). A rule asks no tensor for its value, and reads each row by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from minitf.errors import ConfigError


@dataclass(frozen=True)
class History:
    """The rows so far.

    Attributes:
        ids: (B,N) prompts and what was written, left-padded.
        lengths: tokens of each row without padding.
        prompt_lengths: those of its prompt.
        n_pads: (B,1) N - lengths, on the device of the ids; None: it is made from the lengths.
    """

    ids: Tensor
    lengths: list[int]
    prompt_lengths: list[int]
    n_pads: Tensor | None = None

    @property
    def real(self) -> Tensor:
        """(B,N) bool, False at padding."""
        n_pads = self.n_pads
        if n_pads is None:
            n_pads = self.ids.size(1) - torch.tensor(self.lengths, device=self.ids.device)[:, None]
        return torch.arange(self.ids.size(1), device=self.ids.device) >= n_pads


Rule = Callable[[Tensor, History], Tensor]


def apply_rules(rules: Sequence[Rule], logits: Tensor, history: History) -> Tensor:
    """(B,V) logits after all rules, one after another; a row that they leave nothing to choose from is left as it was.

    Args:
        rules: any number.
        logits: (B,V) of the model.
        history: the rows that they go on from.
    """
    ruled = logits
    for rule in rules:
        ruled = rule(ruled, history)
    if ruled is logits:
        return logits
    return torch.where(ruled.amax(-1, keepdim=True) == float("-inf"), logits, ruled)


class RepetitionPenalty:
    """Make each token that the row holds less likely, prompt included, once however often it stands there.

    Args:
        penalty: positive logits are divided by it, negative ones multiplied; 1 changes nothing.

    Raises:
        ConfigError: a penalty outside 0.01 to 100: beyond, logits lose their digits or overflow.

    Source: Keskar et al. 2019, section 4.1; negative logits as in every later implementation.
    """

    def __init__(self, penalty: float) -> None:
        if not 0.01 <= penalty <= 100:
            raise ConfigError(f"repetition_penalty must lie between 0.01 and 100 (1 for none), got {penalty}")
        self.penalty = penalty

    def __call__(self, logits: Tensor, history: History) -> Tensor:
        """(B,V) -> (B,V)."""
        if self.penalty == 1:
            return logits
        seen = _marked(history.ids, history.real, logits.size(-1))
        return torch.where(seen, torch.where(logits > 0, logits / self.penalty, logits * self.penalty), logits)


class NoRepeatNgram:
    """Forbid every token that would complete n tokens that stand in the row already, in its prompt or after it.

    Args:
        n: tokens that may not come twice; 1: no token twice.

    Raises:
        ConfigError: n below 1.

    Source: Paulus et al. 2018, section 2.5.
    """

    def __init__(self, n: int) -> None:
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise ConfigError(f"no_repeat_ngram must be a whole number of at least 1, or null for no rule, got {n!r}")
        self.n = n

    def __call__(self, logits: Tensor, history: History) -> Tensor:
        """(B,V) -> (B,V)."""
        ids, n = history.ids, self.n
        if ids.size(1) < n:
            return logits
        earlier = ids.unfold(1, n, 1)  # (B,N-n+1,n)
        same = (earlier[..., :-1] == ids[:, None, ids.size(1) - n + 1 :]).all(-1)
        # padding stands on the left: an n-gram that begins with a real token holds no other
        same &= history.real[:, : earlier.size(1)]
        return logits.masked_fill(_marked(earlier[..., -1], same, logits.size(-1)), float("-inf"))


class MinLength:
    """Forbid the stop tokens until n new tokens stand before them.

    Args:
        n: new tokens, the stop token not counted.
        stop: ids of the stop tokens.

    Raises:
        ConfigError: n below 0.
    """

    def __init__(self, n: int, stop: Collection[int]) -> None:
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise ConfigError(f"min_new_tokens must be a whole number of at least 0, got {n!r}")
        self.n = n
        self._stop = torch.tensor(sorted(stop), dtype=torch.long)

    def __call__(self, logits: Tensor, history: History) -> Tensor:
        """(B,V) -> (B,V)."""
        early = [n - p < self.n for n, p in zip(history.lengths, history.prompt_lengths, strict=True)]
        if not any(early):
            return logits
        self._stop = self._stop.to(logits.device)  # once: a copy at each token would make the device wait
        stops = torch.isin(torch.arange(logits.size(-1), device=logits.device), self._stop)
        if not all(early):
            stops = stops & torch.tensor(early, device=logits.device)[:, None]
        return logits.masked_fill(stops, float("-inf"))


def _marked(ids: Tensor, keep: Tensor, n: int) -> Tensor:
    """(B,n) bool: which of n ids stand at a place (B,M) that is kept."""
    index = torch.where(keep & (ids < n), ids, n)
    return torch.zeros(ids.size(0), n + 1, dtype=torch.bool, device=ids.device).scatter_(1, index, True)[:, :n]
