"""Samplers: from a row of logits to one token id."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from minitf.errors import ConfigError


class Greedy:
    """The most likely token, always."""

    def __call__(self, logits: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
        """(B,V) -> (B,)."""
        return logits.argmax(-1)

    def probs(self, logits: Tensor) -> Tensor:
        """(B,V) logits -> (B,V) float64: 1 at the most likely token."""
        return _one_hot(logits)


class Sample:
    """Draw from the model's distribution, after narrowing it: temperature, then top-k, then top-p, then min-p.

    Args:
        temperature: logits are divided by it; 0 means the most likely token.
        top_k: keep the k most likely tokens (and those that tie with the k-th); null keeps all.
        top_p: keep the smallest set of most likely tokens whose mass reaches p; null keeps all.
        min_p: keep the tokens that are at least this many times as likely as the most likely one; null keeps all.

    Raises:
        ConfigError: a value outside its range.

    Source: Holtzman et al. 2020, section 3.1 (top-p); Nguyen et al. 2024, section 3 (min-p).
    """

    def __init__(
        self, temperature: float, top_k: int | None = None, top_p: float | None = None, min_p: float | None = None
    ) -> None:
        if not 0 <= temperature < float("inf"):
            raise ConfigError(f"sampler.temperature must be 0 (greedy) or a positive number, got {temperature}")
        if top_k is not None and (isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1):
            raise ConfigError(
                f"sampler.top_k must be a whole number of at least 1, or null for no limit, got {top_k!r}"
            )
        for name, p in (("top_p", top_p), ("min_p", min_p)):
            if p is not None and (isinstance(p, bool) or not (isinstance(p, int | float) and 0 < p <= 1)):
                raise ConfigError(f"sampler.{name} must lie above 0 and up to 1, or be null for no limit, got {p!r}")
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p
        self.min_p = min_p

    def __call__(self, logits: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
        """(B,V) and one generator per row -> (B,)."""
        return logits.argmax(-1) if self.temperature == 0 else draw(self.probs(logits), generators)

    def probs(self, logits: Tensor) -> Tensor:
        """(B,V) logits -> (B,V) float64, the distribution that tokens are drawn from."""
        if self.temperature == 0:
            return _one_hot(logits)
        # the largest logit is taken off first, in float64, so that no temperature can overflow or vanish
        scaled = (logits.double() - logits.double().amax(-1, keepdim=True)) / self.temperature
        if self.top_k is not None:
            scaled = keep_top_k(scaled, self.top_k)
        if self.top_p is not None:
            scaled = keep_top_p(scaled, self.top_p)
        if self.min_p is not None:
            scaled = keep_min_p(scaled, self.min_p)
        return scaled.softmax(-1)


def draw(probs: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
    """(B,V) distributions and one generator per row -> (B,) ids.

    The token whose probability divided by an exponential number is largest has that probability. `torch.multinomial`
    does the same, but waits for the device to check its input.
    """
    noise = torch.empty_like(probs)
    for row, generator in zip(noise, generators, strict=True):
        row.exponential_(generator=generator)
    return (probs / noise).argmax(-1)


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """(B,V) logits with -inf outside the k largest of each row."""
    if k >= logits.size(-1):
        return logits
    smallest = logits.topk(k, dim=-1).values[:, -1:]
    return logits.masked_fill(logits < smallest, float("-inf"))


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """(B,V) logits with -inf outside the smallest set of each row whose probability reaches p."""
    if p >= 1:
        return logits
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    probs = ordered.double().softmax(-1)
    # a token stays while the mass before it has not reached p: the one that crosses the limit stays
    before = probs.cumsum(-1) - probs
    dropped = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, before >= p)
    return logits.masked_fill(dropped, float("-inf"))


def keep_min_p(logits: Tensor, p: float) -> Tensor:
    """(B,V) logits with -inf at tokens that are less than p times as likely as the most likely one of the row."""
    return logits.masked_fill((logits - logits.amax(-1, keepdim=True)).exp() < p, float("-inf"))


def _one_hot(logits: Tensor) -> Tensor:
    return torch.zeros_like(logits, dtype=torch.float64).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
