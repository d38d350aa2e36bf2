"""What each attention module does with queries, keys and values that are given to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from minitf.analysis.forward import Batch, run
from minitf.analysis.sites import Site
from minitf.demo.doctor.modules import Modules
from minitf.tap import Tap

NOISE = 1e-6  # everything is computed in float64, some parts of a model in float32
LEAST_KEYS = 4  # rows with fewer say nothing about spread


@dataclass(frozen=True)
class Weights:
    """The weights of one attention module.

    Args:
        site: where.
        rows, columns: smallest and largest sum of the weights of a query, of a key; of those that read, or are read.
        random: whether two passes in evaluation differ.
        ones: whether every weight is 1, in rows that read several keys.
        rows_alone: whether another query changes nothing for the others; None: it was not to be found out.
        swaps: whether two keys that change places with their values change nothing; None: places act in the scores,
            or nobody reads two keys, or it was not to be found out.
    """

    site: Site
    rows: tuple[float, float]
    columns: tuple[float, float]
    random: bool
    ones: bool
    rows_alone: bool | None
    swaps: bool | None


@dataclass(frozen=True)
class Attention(Weights):
    """One attention module that was given queries, keys and values.

    Args:
        site, rows, columns, random, ones, rows_alone, swaps: as for `Weights`.
        width: d of queries and keys.
        seen: bool (T,S), which key some query there read.
        score_std: of the scores of queries and keys with variance 1.
        plain: whether the scores are the products q.k, up to what places add.
        own_spread: standard deviation of the model's own products q.k over the keys of a query.
        top: the largest weight of a query, on average, with the model's own queries and keys.
        dropout: share of the weights that training drops; 0: none; None: training changes the outputs in another way.
    """

    width: int
    seen: Tensor
    score_std: float
    plain: bool
    own_spread: float
    top: float
    dropout: float | None


@torch.no_grad()
def weights_of(model: nn.Module, batch: Batch, sites: Sequence[Site]) -> list[Weights]:
    """What can be seen of modules that make their queries and keys themselves, with those of a batch.

    Those that read a source get another last query, by another token, and two keys of the source change places.
    """

    def read(seed: int, call: Callable[[], object]) -> list[Tensor]:
        torch.manual_seed(seed)
        with Tap(model, at=[site.point("weights") for site in sites]) as tap:
            call()
        return [tap[site.point("weights")] for site in sites]

    first, again = (read(seed, lambda: run(model, batch)) for seed in (0, 1))
    moved = swapped = [None] * len(sites)
    if hasattr(model, "step") and hasattr(model, "encode"):
        ids = batch["ids"].clone()
        ids[:, -1] = ids[:, -2]
        moved = read(0, lambda: run(model, {**batch, "ids": ids}))
        pair = _middle(batch["src"].size(1)) - 1  # the ends of a source may begin the state of a recurrent model
        memory = _swap(model.encode(batch["src"])[:, None], pair)[:, 0]
        swapped = [_swap(one.mT, pair).mT for one in read(0, lambda: model.hidden(batch["ids"], None, memory))]
    return [
        Weights(
            site=site,
            rows=_sums(one)[0],
            columns=_sums(one)[1],
            random=not _same(one, two),
            ones=_ones(one),
            rows_alone=_same(one[:, :, :-1], other[:, :, :-1]) if other is not None and site.kind == "cross" else None,
            swaps=_same(one, turned) if turned is not None and site.kind == "cross" else None,
        )
        for site, one, two, other, turned in zip(sites, first, again, moved, swapped, strict=True)
    ]


def look(modules: Modules) -> list[Attention]:
    """Probe every module; the model is in evaluation mode before and after."""
    q, k = modules.draw(0)
    first, again = modules.amounts(q, k, seed=0), modules.amounts(q, k, seed=1)
    other = {site: _other_query(one) for site, one in q.items()}
    moved = modules.amounts(other, k)
    swapped = [{s: _swap(one, pair) for s, one in k.items()} for pair in (0, -2)]
    swapped = [modules.amounts(q, one) for one in swapped]
    equal = modules.amounts(q, {site: one[:, :, :1].expand_as(one) for site, one in k.items()})
    scores = modules.read(["scores"], {"q": q, "k": k})["scores"]
    own = modules.read(["q", "k", "weights"])
    modules.model.train()
    trained = [modules.amounts(q, k, seed) for seed in (2, 3)]
    modules.model.eval()
    found = []
    for site in modules.sites:
        weights = first[site]
        seen = ((weights.abs() > 0) | (equal[site].abs() > 0)).flatten(0, 1).any(0)
        std, plain = _scores(q[site], k[site], scores[site])
        products = _products(own["q"][site], own["k"][site])
        found.append(
            Attention(
                site=site,
                width=q[site].size(-1),
                rows=_sums(weights)[0],
                columns=_sums(weights)[1],
                seen=seen,
                ones=_ones(weights),
                rows_alone=_same(_without(weights), _without(moved[site])),
                swaps=_swaps(weights, [one[site] for one in swapped], equal[site], seen),
                score_std=std,
                plain=plain,
                own_spread=_over_rows(products, seen, lambda row: row.std(-1)),
                top=_over_rows(own["weights"][site], seen, lambda row: row.amax(-1)),
                random=not _same(weights, again[site]),
                dropout=_dropped(weights, [one[site] for one in trained]),
            )
        )
    return found


def _same(a: Tensor, b: Tensor) -> bool:
    return bool((a - b).abs().max() <= NOISE) if a.numel() else True


def _sums(weights: Tensor) -> tuple[tuple[float, float], tuple[float, float]]:
    return tuple(_ends(weights.sum(axis), weights.abs().sum(axis)) for axis in (-1, -2))


def _ends(sums: Tensor, size: Tensor) -> tuple[float, float]:
    """Of the sums of those that have any weight."""
    some = sums[size > 0]
    return (some.min().item(), some.max().item()) if some.numel() else (0.0, 0.0)


def _ones(weights: Tensor) -> bool:
    some = weights[weights.abs() > 0]
    return bool(((some - 1).abs() <= NOISE).all() and (weights.sum(-1) > 1.5).any())


def _middle(n: int) -> int:
    return n // 2


def _other_query(q: Tensor) -> Tensor:
    changed = q.clone()
    changed[:, :, _middle(q.size(2))] *= -1
    return changed


def _without(weights: Tensor) -> Tensor:
    """The rows of the other queries."""
    keep = torch.arange(weights.size(2)) != _middle(weights.size(2))
    return weights[:, :, keep]


def _swap(k: Tensor, first: int) -> Tensor:
    order = torch.arange(k.size(2))
    order[[first, first + 1]] = order[[first + 1, first]]
    return k[:, :, order]


def _swaps(weights: Tensor, swapped: list[Tensor], equal: Tensor, seen: Tensor) -> bool | None:
    """Whether the weights follow two keys that change places; only asked where places do not act in the scores."""
    flat = [row[mask] for row, mask in zip(equal.permute(2, 3, 0, 1), seen, strict=True)]
    if any(len(row) > 1 and not _same(row, row[:1].expand_as(row)) for row in flat):
        return None
    answers = []
    for pair, changed in zip((0, -2), swapped, strict=True):
        both = seen[:, pair] & seen[:, pair + 1]
        if both.any():
            answers.append(_same(_swap(weights.mT, pair).mT[:, :, both], changed[:, :, both]))
    return all(answers) if answers else None


def _products(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.repeat_interleave(q.size(1) // k.size(1), 1).mT


def _scores(q: Tensor, k: Tensor, scores: Tensor) -> tuple[float, bool]:
    """Standard deviation over the rows of the batch, which differ in q and k alone, and whether that is all of q.k."""
    products = _products(q, k)
    rest = (scores - products).var(0).mean()
    return scores.var(0).mean().sqrt().item(), bool(rest < 0.05 * products.var(0).mean())


def _over_rows(values: Tensor, seen: Tensor, of: Callable[[Tensor], Tensor]) -> float:
    """The mean over queries that read enough keys; 0 where none does."""
    found = [of(values[:, :, t, mask]).mean() for t, mask in enumerate(seen) if mask.sum() >= LEAST_KEYS]
    return torch.stack(found).mean().item() if found else 0.0


def _dropped(weights: Tensor, trained: list[Tensor]) -> float | None:
    """What share training drops, if all it does is to drop weights and to make the others larger, all alike."""
    if all(_same(weights, one) for one in trained):
        return 0.0
    some = weights.abs() > NOISE
    ratios = torch.cat([one[some] / weights[some] for one in trained])
    kept = ratios[ratios.abs() > NOISE]
    alike = kept.numel() > 0 and bool((kept - kept.mean()).abs().max() <= 1e-4)
    return 1 - kept.numel() / ratios.numel() if alike and kept.numel() < ratios.numel() else None
