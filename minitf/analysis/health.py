"""Whether a model is well, layer by layer: do tokens still differ, do scores explode, does a gradient come through?"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from minitf.analysis import attention_rows, stream
from minitf.analysis.forward import IGNORED, Batch, answers, evaluating, losses, n_rows, positions, rows_of, run
from minitf.analysis.places import Place, places
from minitf.analysis.sites import Site
from minitf.analysis.visible import visible
from minitf.tap import Tap

CHUNK = 8  # rows of a batch that are read at a time


@dataclass(frozen=True)
class LayerHealth:
    """The state of one layer, or of the cross-attention of one; None where it has no such thing.

    The first four are means over documents (rows, or the documents of packed rows) of the residual stream X (T,D) after
    the layer; of attention, rows that see too few keys are left out, see `minitf.analysis.attention_rows`.

    Args:
        kind, layer: "self", "encoder", "decoder" or "cross", and its number.
        name: what people call it: "layer 5".
        relative_residual: norm_F(X - 1 mean_t X) / norm_F(X), 1 to 0 (Dong et al. 2021).
        token_cosine: mean over t != s of cos(X_t, X_s), to 1 where oversmoothed (Noci et al. 2022).
        effective_rank: exp(entropy of the singular values of X), 1 to min(T,D) (Roy and Vetterli 2007).
        dirichlet_energy: sum_t norm(X_t - mean X)^2; depends on the scale.
        max_logit: largest |score| before the mask; healthy below 60, failing above 1000 (Dehghani et al. 2023).
        saturated_share: share of rows with a weight above 0.99.
        median_jacobian: median over rows of norm_F(diag(p) - p p^T), 0.3 for random scores, 0 where nothing comes back.
        entropy: mean over heads and rows of the entropy divided by that of the visible keys, 1 uniform, 0 one-hot;
            below 0.05 collapsed (Zhai et al. 2023).
        lowest_entropy: that of the head where it is lowest.
        head_divergence: how far the patterns of heads differ, 0 all the same to log2 H bits (Lin 1991); None for one.
        gradients: norm of the gradient of the loss by projection, as they are called: w_q, w_k, w_v, w_o.
    """

    kind: str
    layer: int
    name: str
    relative_residual: float | None = None
    token_cosine: float | None = None
    effective_rank: float | None = None
    dirichlet_energy: float | None = None
    max_logit: float | None = None
    saturated_share: float | None = None
    median_jacobian: float | None = None
    entropy: float | None = None
    lowest_entropy: float | None = None
    head_divergence: float | None = None
    gradients: Mapping[str, float] = field(default_factory=dict)

    def values(self) -> dict[str, float]:
        """What was measured, by name; gradients as "gradient_w_q"."""
        skipped = ("kind", "layer", "name", "gradients")
        found = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in skipped}
        found |= {f"gradient_{name}": value for name, value in self.gradients.items()}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def place(self) -> str:
        """The layer in the name of a metric: "5", "cross.1"."""
        return str(self.layer) if self.kind == "self" else f"{self.kind}.{self.layer}"


def health(
    model: nn.Module,
    batch: Batch,
    loss: Callable[[nn.Module, Batch], Tensor] | None = None,
    gradients: bool = True,
    chunk: int = CHUNK,
) -> list[LayerHealth]:
    """Measure every layer in evaluation mode and float32, padding excluded and packed rows document by document.

    The model stays as it is: its mode, its gradients and the random state.

    Args:
        model: any module with tap points; layers are found by theirs.
        batch: "ids" and what else the model reads; "targets" or "label" where gradients are wanted.
        loss: of a batch, a scalar, for the gradients; None: the mean over what the batch asks.
        gradients: False leaves them out.
        chunk: rows that are read at a time; the result does not depend on it.

    Returns:
        A LayerHealth for each layer in order, that of a layer's cross-attention after it; [] without tap points.
    """
    found = places(model)
    streams = {place: [] for place in found if place.stream}
    rows = {place: [] for place in found if place.site}
    least = {place: _least(model, place.site, batch, chunk) for place in rows}
    with evaluating(model), torch.no_grad():
        for start in range(0, n_rows(batch) if found else 0, chunk):
            part = rows_of(batch, start, start + chunk)
            with Tap(model, at=_points(model, found)) as tap:
                run(model, part)
            where: dict[str, tuple[Tensor, Tensor]] = {}
            for place in streams:
                if place.kind not in where:
                    where[place.kind] = stream.documents(positions(part, place.kind)[0])
                streams[place].append(_stream(tap[f"{place.stream}.resid_out"], *where[place.kind]))
            for place in rows:
                rows[place].append(_attention(model, place.site, tap, part, least[place]))
    norms = gradient_norms(model, batch, loss) if gradients else {}
    return [
        LayerHealth(
            place.kind,
            place.layer,
            place.name,
            **_mean(streams.get(place, [])),
            **_summary(rows.get(place, [])),
            gradients=norms.get(place, {}),
        )
        for place in found
    ]


def projections(model: nn.Module, site: Site) -> dict[str, nn.Parameter]:
    """The matrices of an attention, by the names that its modules give them: "w_q", "w_k", "w_v", "w_o".

    Of a parametrized one it is the parameter from which the matrix is computed.
    """
    found = {}
    for path, module in model.get_submodule(site.prefix).named_modules():
        name = path.rpartition(".")[2]
        if name.startswith("w_") and hasattr(module, "weight"):
            found[name] = (
                module.parametrizations.weight.original if is_parametrized(module, "weight") else module.weight
            )
    return found


def gradient_norms(
    model: nn.Module, batch: Batch, loss: Callable[[nn.Module, Batch], Tensor] | None = None
) -> dict[Place, dict[str, float]]:
    """norm_F(dL/dW) of each projection W of each place, without touching the gradients that the model holds.

    Args:
        model, batch, loss: as for `health`.
    """
    of = {place: projections(model, place.site) for place in places(model) if place.site}
    wanted = [(place, name, p) for place, own in of.items() for name, p in own.items() if p.requires_grad]
    if not wanted:
        return {}
    with evaluating(model), torch.enable_grad():
        total = _mean_loss(model, batch) if loss is None else loss(model, batch)
        found = torch.autograd.grad(total, [p for _, _, p in wanted], allow_unused=True)
    norms: dict[Place, dict[str, float]] = {}
    for (place, name, _), gradient in zip(wanted, found, strict=True):
        norms.setdefault(place, {})[name] = 0.0 if gradient is None else float(gradient.float().norm())
    return norms


def _mean_loss(model: nn.Module, batch: Batch) -> Tensor:
    return losses(model, batch).sum() / (answers(batch) != IGNORED).sum().clamp_min(1)


def _points(model: nn.Module, found: list[Place]) -> list[str]:
    known = set(Tap.names(model))
    wanted = [f"{place.stream}.resid_out" for place in found if place.stream]
    wanted += [place.site.point(name) for place in found if place.site for name in ("scores", "weights")]
    return [name for name in wanted if name in known]


def _stream(x: Tensor, index: Tensor, real: Tensor) -> dict[str, Tensor]:
    """One value for each document."""
    x = stream.take(x, index)
    return {
        "relative_residual": stream.relative_residual(x, real),
        "token_cosine": stream.token_cosine(x, real),
        "effective_rank": stream.effective_rank(x, real),
        "dirichlet_energy": stream.dirichlet_energy(x, real),
    }


def _least(model: nn.Module, site: Site, batch: Batch, chunk: int) -> int:
    """The fewest keys of a row that counts, of the whole batch."""
    starts = range(0, n_rows(batch), chunk)
    return max(attention_rows.least_keys(visible(model, site, rows_of(batch, i, i + chunk))[1].sum(-1)) for i in starts)


def _attention(model: nn.Module, site: Site, tap: Tap, batch: Batch, least: int) -> dict[str, Tensor]:
    """Values of each row that counts, heads in front; and of scores the largest."""
    weights = tap[site.point("weights")].float()  # (B,H,T,S)
    pairs, shown = visible(model, site, batch)
    n_visible = shown.sum(-1)[:, 0]  # (B,T)
    counted = n_visible >= least
    rows = weights.transpose(0, 1)[:, counted]  # (H, rows, S)
    found = {
        "saturated": attention_rows.saturated(rows),
        "jacobian": attention_rows.jacobian_norm(rows),
        "entropy": attention_rows.normalised_entropy(rows, n_visible[counted]),
    }
    if len(rows) > 1:
        found["divergence"] = attention_rows.head_divergence(rows)
    if site.point("scores") in tap.values:
        found["max_logit"] = attention_rows.max_logit(tap[site.point("scores")], pairs)[None]
    return found


def _mean(parts: list[dict[str, Tensor]]) -> dict[str, float | None]:
    """The mean over all documents that have a value."""
    return {name: _number(torch.cat([part[name] for part in parts]).nanmean()) for name in (parts[0] if parts else ())}


def _summary(parts: list[dict[str, Tensor]]) -> dict[str, float | None]:
    if not parts:
        return {}
    joined = {name: torch.cat([part[name] for part in parts], -1) for name in parts[0]}
    entropy = joined["entropy"].mean(-1)  # (H,)
    there = joined["jacobian"].numel() > 0
    logits = joined.get("max_logit")
    return {
        "saturated_share": _number(joined["saturated"].float().mean()),
        "median_jacobian": _number(joined["jacobian"].median()) if there else None,
        "entropy": _number(entropy.mean()),
        "lowest_entropy": _number(entropy.min()),
        "head_divergence": _number(joined["divergence"].mean()) if "divergence" in joined else None,
        "max_logit": None if logits is None or logits.isnan().all() else _number(logits.nan_to_num(nan=0.0).max()),
    }


def _number(value: Tensor) -> float | None:
    number = float(value)
    return None if math.isnan(number) else number
