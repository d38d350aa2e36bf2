"""Activations of one run in another: what brings the first run's behaviour back is where it is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from minitf.analysis.forward import Batch, evaluating, run
from minitf.analysis.intervene.choice import Head, all_heads
from minitf.errors import DataError
from minitf.tap import Edit, Tap

Metric = Callable[[Tensor], Tensor | float]  # logits -> number
KINDS = {"resid_in": "*.resid_in", "resid_mid": "*.resid_mid", "resid_out": "*.resid_out", "mlp": "*.ffn.hidden"}


def activations(model: nn.Module, batch: Batch, points: Sequence[str]) -> dict[str, Tensor]:
    """What stands at tap points in a run: name -> tensor.

    Args:
        model: in any mode; it is evaluated.
        batch: as for `minitf.analysis.forward.run`.
        points: names, or patterns with `*`.
    """
    with evaluating(model), torch.no_grad(), Tap(model, at=points) as tap:
        run(model, batch)
    return tap.values


def patch(
    model: nn.Module,
    values: Mapping[str, Tensor],
    heads: Mapping[str, Sequence[int]] | None = None,
    places: Tensor | None = None,
) -> Tap:
    """Activations of another run, inside of a `with` block.

    Args:
        model: that runs.
        values: name of a tap point -> what goes on from there, as `activations` gave it.
        heads: name of a point (B,H,T,d) -> the heads that are replaced; a name that is not there: all of them.
        places: bool (B,T), the tokens of the target or, in an encoder, of the source that are replaced; None: all.
    """
    heads = heads or {}
    return Tap(model, edit={name: _replace(value, heads.get(name), places) for name, value in values.items()})


def recovered(patched: float, corrupt: float, clean: float) -> float:
    """(patched - corrupt) / (clean - corrupt): 0 nothing came back, 1 all of it; it can lie outside.

    Raises:
        DataError: the two runs do not differ.
    """
    if clean == corrupt:
        raise DataError(f"both runs have the metric {clean}: choose two inputs on which the model behaves differently")
    return (patched - corrupt) / (clean - corrupt)


def patch_heads(
    model: nn.Module, clean: Batch, corrupt: Batch, metric: Metric, heads: Sequence[Head] | None = None
) -> dict[Head, float]:
    """Share of the metric that one head of the clean run brings back in the corrupt one, head by head.

    Args:
        model: in any mode; it is evaluated.
        clean, corrupt: two batches of the same shape.
        metric: of logits (B,T,V).
        heads: which; None: all.

    Raises:
        DataError: the metric of both runs is the same.

    Source: Meng et al. 2022 (causal tracing); Wang et al. 2023, section 3.
    """
    heads = all_heads(model) if heads is None else heads
    values = activations(model, clean, list(dict.fromkeys(site.point("heads") for site, _ in heads)))
    edits = {}
    for site, head in heads:
        point = site.point("heads")
        edits[site, head] = patch(model, {point: values[point]}, {point: [head]})
    return _shares(model, clean, corrupt, metric, edits)


def patch_points(
    model: nn.Module,
    clean: Batch,
    corrupt: Batch,
    metric: Metric,
    kind: str = "resid_in",
    places: Tensor | None = None,
) -> dict[str, float]:
    """The same for the residual stream or the hidden layer of the network, layer by layer.

    Args:
        model, clean, corrupt, metric: as for `patch_heads`.
        kind: "resid_in", "resid_mid", "resid_out", "mlp", or a pattern of tap names.
        places: as for `patch`.

    Returns:
        name of the tap point -> share.
    """
    values = activations(model, clean, [KINDS.get(kind, kind)])
    edits = {name: patch(model, {name: value}, places=places) for name, value in values.items()}
    return _shares(model, clean, corrupt, metric, edits)


def patch_places(model: nn.Module, clean: Batch, corrupt: Batch, metric: Metric, point: str) -> list[float]:
    """The same for each place of one tap point alone: [share of place 0, ...].

    Args:
        model, clean, corrupt, metric: as for `patch_heads`.
        point: name of one with a place for each token, such as "layers.1.resid_in".
    """
    value = activations(model, clean, [point])[point]
    rows, length = (value.size(0), value.size(-2))
    edits = {}
    for place in range(length):
        only = torch.zeros(rows, length, dtype=torch.bool, device=value.device)
        only[:, place] = True
        edits[place] = patch(model, {point: value}, places=only)
    return list(_shares(model, clean, corrupt, metric, edits).values())


def _shares(model: nn.Module, clean: Batch, corrupt: Batch, metric: Metric, edits: dict) -> dict:
    with evaluating(model), torch.no_grad():
        ends = [float(metric(run(model, batch))) for batch in (corrupt, clean)]
        found = {}
        for name, edit in edits.items():
            with edit:
                found[name] = recovered(float(metric(run(model, corrupt))), *ends)
    return found


def _replace(new: Tensor, heads: Sequence[int] | None, places: Tensor | None) -> Edit:
    def edit(value: Tensor) -> Tensor:
        if new.shape != value.shape:
            raise DataError(
                f"an activation of shape {tuple(new.shape)} cannot stand for one of {tuple(value.shape)}: give two "
                "batches of the same shape"
            )
        chosen = torch.ones((), dtype=torch.bool, device=value.device)
        if heads is not None:
            chosen = torch.zeros(value.size(1), 1, 1, dtype=torch.bool, device=value.device)
            chosen[list(heads)] = True
        if places is not None:
            chosen = chosen & (places[:, None, :, None] if value.dim() == 4 else places[..., None])
        return torch.where(chosen, new.to(value), value)

    return edit
