"""How much the loss would change if a head were turned down a little."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from minitf.analysis import forward
from minitf.analysis.forward import IGNORED, Batch, answers, evaluating, n_rows, rows_of
from minitf.analysis.heads.average import Average
from minitf.analysis.sites import Site, sites
from minitf.tap import Tap

Losses = Callable[[nn.Module, Batch], Tensor]


def importance(
    model: nn.Module, batches: Iterable[Batch], losses: Losses = forward.losses, rows_at_once: int = 32
) -> dict[Site, Tensor]:
    """I_h = mean over rows x of abs(dL(x) / d xi_h), xi_h = 1 a gate on what head h reads, L(x) the mean loss of row x.

    Args:
        model: in any mode; it is evaluated.
        batches: of the task.
        losses: (model, batch) -> (B, ...) loss of each answer, 0 where nothing is asked; such as `forward.losses`.
        rows_at_once: how many rows go through the model at a time.

    Returns:
        site -> float64 (H,), at least 0; NaN where no row asks anything. Sites whose heads cannot be edited, as in a
        recurrent model, are left out.

    Source: Michel et al. 2019, equation 2.
    """
    known = set(Tap.names(model))
    wanted = [site for site in sites(model) if site.point("heads") in known]
    zero = torch.zeros((), dtype=torch.float64)
    found = {site: Average(torch.zeros(site.n_heads, dtype=torch.float64), zero) for site in wanted}
    if not wanted:
        return {}
    for batch in batches:
        for start in range(0, n_rows(batch), rows_at_once):
            piece = rows_of(batch, start, start + rows_at_once)
            asks = (answers(piece) != IGNORED).flatten(1).sum(1)
            slopes = gate_slopes(model, piece, wanted, losses)
            for site, slope in slopes.items():
                of_rows = slope.abs().double() / asks.clamp_min(1)[:, None]  # 0 where a row asks nothing
                found[site] += Average(of_rows.sum(0).cpu(), (asks > 0).sum().double().cpu())
    return {site: average.value for site, average in found.items()}


def gate_slopes(model: nn.Module, batch: Batch, wanted: Iterable[Site], losses: Losses) -> dict[Site, Tensor]:
    """d (summed loss of a row) / d xi_h at xi_h = 1: site -> (B,H).

    Args:
        model, losses: as for `importance`.
        batch: all rows at once.
        wanted: sites.
    """
    device = batch["ids"].device
    gates = {site: torch.ones(n_rows(batch), site.n_heads, 1, 1, device=device, requires_grad=True) for site in wanted}

    def gated(gate: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda heads: heads * gate.to(heads.dtype)

    edit = {site.point("heads"): gated(gate) for site, gate in gates.items()}
    with evaluating(model), torch.enable_grad(), Tap(model, edit=edit):
        loss = losses(model, batch).sum()
        slopes = torch.autograd.grad(loss, list(gates.values()), allow_unused=True)
    return {
        site: (torch.zeros_like(gate) if slope is None else slope).flatten(1)
        for (site, gate), slope in zip(gates.items(), slopes, strict=True)
    }


def normalised(found: dict[Site, Tensor]) -> dict[Site, Tensor]:
    """Importance divided by its l2 norm over the heads of each layer, (H,) 0 .. 1. Source: Michel et al. 2019, 4.1."""
    return {site: value / value.norm().clamp_min(torch.finfo(value.dtype).tiny) for site, value in found.items()}
