"""Switch heads off, and compare with as many others drawn at random."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from minitf.analysis.forward import Batch, evaluating, positions, run
from minitf.analysis.intervene.choice import Head, Heads, all_heads, check_heads, editable, grouped, listed, random_sets
from minitf.analysis.scores import Score
from minitf.analysis.sites import Site
from minitf.errors import ConfigError
from minitf.tap import Edit, Tap, zero_heads

HOW = ("zero", "mean", "resample")


@dataclass(frozen=True)
class Effect:
    """What switching off a set of heads does to a score.

    Args:
        full: the score of the whole model.
        ablated: without the set.
        controls: without as many heads drawn at random from those that are not in the set; give all of them.
    """

    full: float
    ablated: float
    controls: tuple[float, ...]

    @property
    def effect(self) -> float:
        """full - ablated: what the set is worth."""
        return self.full - self.ablated

    @property
    def control(self) -> float:
        """full - mean of the controls: what a set of that size is worth anyway; NaN without controls."""
        return self.full - sum(self.controls) / len(self.controls) if self.controls else float("nan")


def ablate(
    model: nn.Module, heads: Heads, how: str = "zero", *, means: Mapping[Site, Tensor] | None = None, seed: int = 0
) -> Tap:
    """Heads without what they read, inside of a `with` block: `with ablate(model, {site: [0, 2]}): model(ids)`.

    Args:
        model: any with tap points.
        heads: site -> numbers of its heads.
        how: "zero": what head h reads is 0 before w_o; "mean": what it reads on average, from `head_means`; "resample":
            what it reads in another row of the same batch, drawn anew in each pass, the same for all heads.
        means: for "mean".
        seed: for "resample".

    Raises:
        ConfigError: no such head or way, or means that are missing.

    Source: Michel et al. 2019 (zero); Olsson et al. 2022 (mean); Chan et al. 2022, causal scrubbing (resample).
    """
    check_heads(model, heads)
    if how not in HOW:
        raise ConfigError(f"how ({how!r}) must be one of {', '.join(HOW)}")
    if how == "mean" and (means is None or any(site not in means for site in heads)):
        raise ConfigError("how='mean' needs the means of these heads: means=head_means(model, batches)")
    edit: dict[str, Edit] = {}
    for site, found in heads.items():
        if how == "zero":
            edit[site.point("heads")] = zero_heads(found)
        elif how == "mean":
            edit[site.point("heads")] = _put(found, means[site])
        else:
            edit[site.point("heads")] = _other_rows(found, seed)
    return Tap(model, edit=edit)


def head_means(model: nn.Module, batches: Iterable[Batch]) -> dict[Site, Tensor]:
    """What each head reads on average over all real tokens: site -> float32 (H,d_v).

    Args:
        model: in any mode; it is evaluated.
        batches: what is averaged over.
    """
    found = editable(model)
    sums = dict.fromkeys(found, 0.0)
    counts = dict.fromkeys(found, 0)
    with evaluating(model), torch.no_grad():
        for batch in batches:
            with Tap(model, at=[site.point("heads") for site in found]) as tap:
                run(model, batch)
            for site in found:
                real = positions(batch, site.kind)[0] >= 0
                heads = tap[site.point("heads")].double().transpose(1, 2)[real]  # (n,H,d)
                sums[site], counts[site] = sums[site] + heads.sum(0), counts[site] + len(heads)
    return {site: (sums[site] / counts[site]).float() for site in found if counts[site]}


def ablation_effect(
    model: nn.Module,
    score: Score,
    heads: Heads,
    how: str = "zero",
    *,
    pool: Sequence[Head] | None = None,
    n_controls: int = 5,
    means: Mapping[Site, Tensor] | None = None,
    seed: int = 0,
) -> Effect:
    """Score with and without a set of heads, and without random sets of the same size.

    Args:
        model, heads, how, means, seed: as for `ablate`.
        score: of a model.
        pool: what the random sets are drawn from; None: all heads that are not in the set. Leave out those that are
            known to matter for another reason.
        n_controls: how many random sets; 0: none.

    Raises:
        ConfigError: as `ablate`, or a pool that is smaller than the set.
    """
    own = listed(heads)
    pool = [head for head in (all_heads(model) if pool is None else pool) if head not in own]
    sets = random_sets(pool, len(own), n_controls, seed) if n_controls else []

    def without(some: Heads) -> float:
        with ablate(model, some, how, means=means, seed=seed):
            return score(model)

    return Effect(score(model), without(heads), tuple(without(grouped(one)) for one in sets))


def _put(heads: Sequence[int], mean: Tensor) -> Edit:
    def edit(value: Tensor) -> Tensor:
        value = value.clone()
        value[:, list(heads)] = mean[list(heads)].to(value)[:, None]
        return value

    return edit


def _other_rows(heads: Sequence[int], seed: int) -> Edit:
    generator = torch.Generator().manual_seed(seed)

    def edit(value: Tensor) -> Tensor:
        n = len(value)
        if n < 2:
            raise ConfigError("how='resample' takes what heads read in another row: give batches of 2 rows or more")
        # a shift along a random order gives every row another one
        order = torch.randperm(n, generator=generator)
        other = torch.empty_like(order)
        other[order] = order.roll(1)
        value = value.clone()
        value[:, list(heads)] = value[other.to(value.device)][:, list(heads)]
        return value

    return edit
