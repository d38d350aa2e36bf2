"""Each attention module on its two ways: the fast one, and the definition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from minitf.analysis.forward import Batch, positions
from minitf.analysis.sites import Site
from minitf.demo.doctor.modules import Modules
from minitf.errors import ConfigError
from minitf.positions import from_real, packed
from minitf.tap import Tap

LONG = 256  # tokens; a window of up to 64 is then narrow enough to be computed along a band
PLAIN = "plain"
APART = 1e-5  # of the largest output: as far as rounding in float32 does not reach


@dataclass(frozen=True)
class Paths:
    """One attention module that was given the same queries, keys and values twice.

    Args:
        site: where.
        apart: kind of row -> largest difference of an output of a head, as a share of the largest output.
        softmax: whether its weights by definition are the softmax of its scores.
    """

    site: Site
    apart: Mapping[str, float]
    softmax: bool

    @property
    def differs(self) -> bool:
        """Whether rounding does not explain it."""
        return any(share > APART for share in self.apart.values())


@contextmanager
def by_definition(model: nn.Module, sites: Sequence[Site]) -> Iterator[None]:
    """Within the block these modules compute scores and weights: somebody wants to change them, and does not."""
    with Tap(model, edit={site.point("scores"): lambda scores: scores for site in sites}):
        yield


def compare(model: nn.Module, batch: Batch, n_words: Mapping[str, int], found: Sequence[Site]) -> list[Paths]:
    """Ask every module that can be given something, and gives the same each time, in rows of each kind that the model
    takes. What a fast path does in float32 alone, as FlexAttention, is not seen.

    Args:
        model: any, in evaluation mode.
        batch: as for `Modules`; its first two rows are used.
        n_words: size of the vocabulary of each of its sequences.
        found: the model's sites.
    """
    apart: dict[Site, dict[str, float]] = {}
    softmax: dict[Site, bool] = {}
    for kind, rows in _kinds(batch, n_words, getattr(model, "position_limit", None)).items():
        try:
            modules = Modules(model, rows, found)
        except ConfigError:  # the model takes no such rows
            continue
        given = dict(zip("qkv", modules.draw(0, 3), strict=True))
        fast, again = (_heads(modules, given, seed) for seed in (0, 1))
        with by_definition(model, modules.sites):
            defined = modules.read(["heads", "scores", "weights"], given)
        for site in modules.sites:
            if not fast[site].equal(again[site]):
                continue  # by chance: nothing can be compared
            asked = positions(rows, site.kind)[0] >= 0
            apart.setdefault(site, {})[kind] = _apart(fast[site], defined["heads"][site], asked)
            if kind == PLAIN:
                softmax[site] = _is_softmax(defined["scores"][site], defined["weights"][site])
    return [Paths(site, shares, softmax[site]) for site, shares in apart.items()]


def _heads(modules: Modules, given: Mapping[str, Mapping[Site, Tensor]], seed: int) -> Mapping[Site, Tensor]:
    torch.manual_seed(seed)
    return modules.read(["heads"], given)["heads"]


def _kinds(batch: Batch, n_words: Mapping[str, int], limit: int | None) -> dict[str, Batch]:
    two = {name: value[:2] for name, value in batch.items()}
    n = two["ids"].size(1)
    place, cut = torch.arange(n), n // 3
    pos = from_real(torch.stack([place >= cut, place < n - cut]))  # one row is padded to the left, one to the right
    kinds = {PLAIN: two, "padded": {**two, "pos": pos} | ({"src_pos": pos} if "src" in two else {})}
    if "src" not in two:
        kinds["packed"] = {**two, "pos": packed([n // 2, n - n // 2], n)[None]}
    long = LONG if limit is None else min(LONG, limit)
    if long > n:
        generator = torch.Generator().manual_seed(0)
        kinds["long"] = {name: torch.randint(words, (1, long), generator=generator) for name, words in n_words.items()}
    return kinds


def _apart(fast: Tensor, defined: Tensor, asked: Tensor) -> float:
    """Over the queries (B,T) that are tokens; what is no number is infinitely far."""
    largest = defined.abs().max().clamp_min(1e-12)
    share = ((fast - defined).abs().transpose(1, 2)[asked.expand(len(fast), -1)].max() / largest).item()
    return share if share == share else float("inf")


def _is_softmax(scores: Tensor, weights: Tensor) -> bool:
    expected = scores.masked_fill(weights == 0, float("-inf")).softmax(-1)
    return bool((expected.nan_to_num(0.0) - weights).abs().max() < APART)
