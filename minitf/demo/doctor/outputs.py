"""What a token does to the outputs of a whole model, its own and those of other tokens."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from minitf.analysis.forward import Batch, run
from minitf.cache.dynamic import Dynamic
from minitf.errors import ConfigError
from minitf.positions import from_real, packed

LEAK = 1e-5  # of the largest effect that a token has at all


@dataclass(frozen=True)
class Outputs:
    """A whole model; effects are the largest change of a logit, as a share of the largest effect of any token.

    Args:
        writes: whether the model writes text token by token, so that no token may know the next.
        future, past: effect of a token on outputs before it, and after it; None: one output for a whole row.
        padding: effect of what stands at padding; None: the model takes no padding.
        documents: effect of a document on another one in the same row; None: the model takes no such rows.
        random: whether two passes in evaluation differ.
        cached: difference between token by token with a cache and all at once; None: no cache fits.
    """

    writes: bool
    future: float | None
    past: float | None
    padding: float | None
    documents: float | None
    random: bool
    cached: float | None


@torch.no_grad()
def look(model: nn.Module, batch: Batch, n_words: Mapping[str, int]) -> Outputs:
    """Probe a model in evaluation mode.

    Args:
        model: any.
        batch: "ids" (B,T) and perhaps "src" (B,S); its first row is used.
        n_words: size of the vocabulary of each.

    Raises:
        ConfigError: its outputs are not finite.
    """
    row = {name: value[:1] for name, value in batch.items()}
    torch.manual_seed(0)
    plain = run(model, row)
    if not plain.isfinite().all():
        raise ConfigError("this model's outputs are not all finite, so nothing can be compared: its training diverged")
    torch.manual_seed(1)
    random = not torch.allclose(plain, run(model, row), rtol=0, atol=1e-9 * max(1.0, plain.abs().max().item()))
    writes = hasattr(model, "step")
    if random:
        return Outputs(writes, None, None, None, None, random=True, cached=None)
    n = row["ids"].size(1)
    changed = torch.where(torch.eye(n, dtype=torch.bool), (row["ids"] + 1) % n_words["ids"], row["ids"])
    whole = {name: value.expand(n, -1) for name, value in row.items()} | {"ids": changed}
    by_token = plain.dim() == 3
    effects = _effects(model, whole, plain)  # (token that is changed, output), or (token, 1)
    unit = effects.max().clamp_min(1e-12)
    future = past = None
    if by_token:
        future, past = (effects.tril(-1).max() / unit).item(), (effects.triu(1).max() / unit).item()
    return Outputs(
        writes=writes,
        future=future,
        past=past,
        padding=_or_none(lambda: _padding(model, row, n_words, unit)),
        documents=_or_none(lambda: _documents(model, row, n_words, unit)) if by_token and "src" not in row else None,
        random=False,
        cached=_or_none(lambda: _cached(model, row, plain)),
    )


def _or_none(probe: Callable[[], float]) -> float | None:
    """What a probe finds; None where the model refuses to be asked."""
    try:
        return probe()
    except ConfigError:
        return None


def _effects(model: nn.Module, changed: Batch, plain: Tensor) -> Tensor:
    """(rows, T): how far the outputs of each row are from the plain ones."""
    return (run(model, changed) - plain).abs().amax(-1).reshape(changed["ids"].size(0), -1)


def _padding(model: nn.Module, row: Batch, n_words: Mapping[str, int], unit: Tensor) -> float:
    """Other tokens at padding, on either side and in either sequence."""
    worst = 0.0
    for name, pos in (("ids", "pos"), ("src", "src_pos")):
        if name not in row:
            continue
        n = row[name].size(1)
        for side in ("left", "right"):
            place = torch.arange(n)[None]
            real = place >= n // 3 if side == "left" else place < n - n // 3
            padded = {**row, pos: from_real(real)}
            other = torch.where(real, row[name], (row[name] + 1) % n_words[name])
            difference = _change(run(model, padded), run(model, {**padded, name: other})).amax(-1)
            if name == "ids" and difference.dim() == 2:
                difference = difference[real]
            worst = max(worst, _share(difference, unit))
    return worst


def _change(a: Tensor, b: Tensor) -> Tensor:
    """How far apart; -inf at padding, as from a model that points, is as far as it was."""
    return torch.where(a == b, 0.0, (a - b).abs())


def _share(difference: Tensor, unit: Tensor) -> float:
    """The largest difference as a share of `unit`; what is no number is infinitely far."""
    share = (difference.max() / unit).item()
    return share if share == share else float("inf")


def _documents(model: nn.Module, row: Batch, n_words: Mapping[str, int], unit: Tensor) -> float:
    """The second of two documents reads the first, or the other way round."""
    n = row["ids"].size(1)
    half, worst = n // 2, 0.0
    both = {**row, "pos": packed([half, n - half], n)[None]}
    plain = run(model, both)
    for own, other in ((slice(0, half), slice(half, n)), (slice(half, n), slice(0, half))):
        ids = row["ids"].clone()
        ids[:, own] = (ids[:, own] + 1) % n_words["ids"]
        difference = _change(run(model, {**both, "ids": ids}), plain)[:, other]
        worst = max(worst, _share(difference, unit))
    return worst


def _cached(model: nn.Module, row: Batch, plain: Tensor) -> float | None:
    """Token by token with the simplest cache against all at once."""
    if not hasattr(model, "step") or not hasattr(model, "new_caches"):
        return None
    more = {}
    if "src" in row and "memory" in inspect.signature(model.step).parameters:
        more = {"memory": model.encode(row["src"], None)}
    caches = model.new_caches(Dynamic)
    steps = [model.step(row["ids"][:, t : t + 1], None, caches, **more) for t in range(row["ids"].size(1))]
    return ((torch.stack(steps, 1) - plain).abs().max() / (plain.max() - plain.min()).clamp_min(1e-12)).item()
