"""Path patching: what one head tells another one, by the residual stream alone."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from minitf.analysis.forward import Batch, evaluating, run
from minitf.analysis.intervene.choice import Head, check_heads, editable
from minitf.analysis.intervene.patching import activations, patch
from minitf.errors import ConfigError
from minitf.tap import Tap

INPUTS = ("q", "k", "v")


def path_patch(
    model: nn.Module,
    source: Batch,
    target: Batch,
    sender: Head,
    receiver: Head | None = None,
    receives: str = "q",
) -> Tensor:
    """Logits of the target run in which one edge carries what it carries in the source run.

    The sender's output is that of the source run; every other head and network writes what it writes in the target run,
    so that only the residual stream passes the change on. What that makes of the receiver's queries, keys or values is
    put into the target run, where everything behind it follows. Without a receiver, the change goes straight to the
    logits.

    Args:
        model: in any mode; it is evaluated.
        source, target: two batches of the same shape.
        sender: (site, head).
        receiver: (site, head), or None for the end of the residual stream.
        receives: "q", "k" or "v". Where several heads share a key and value head, all of them get it.

    Raises:
        ConfigError: no such head or input, or a model whose writes cannot be held fixed: a mixture of experts, a gate.

    Source: Wang et al. 2023 (IOI), section 3.1; Goldowsky-Dill et al. 2023.
    """
    site, head = sender
    check_heads(model, {site: [head]})
    if receives not in INPUTS:
        raise ConfigError(f"receives ({receives!r}) must be one of {', '.join(INPUTS)}")
    frozen = activations(model, target, _writes(model))
    point = site.point("heads")
    sent = frozen[point].clone()
    sent[:, head] = activations(model, source, [point])[point][:, head]
    changed = _run(model, target, {**frozen, point: sent})
    if receiver is None:
        return changed.logits
    to, number = receiver
    check_heads(model, {to: [number]})
    arrives = to.point(receives)
    got = _run(model, target, {**frozen, point: sent}, read=arrives).value
    own = number * got.size(1) // to.n_heads  # of fewer key and value heads each serves several
    with evaluating(model), torch.no_grad(), patch(model, {arrives: got}, {arrives: [own]}):
        return run(model, target)


class _Result:
    def __init__(self, logits: Tensor, value: Tensor | None) -> None:
        self.logits, self.value = logits, value


def _run(model: nn.Module, batch: Batch, values: Mapping[str, Tensor], read: str | None = None) -> _Result:
    with evaluating(model), torch.no_grad(), patch(model, values), Tap(model, at=[read] if read else []) as tap:
        logits = run(model, batch)
    return _Result(logits, tap[read] if read else None)


def _writes(model: nn.Module) -> list[str]:
    """Every tap point behind which something is written into the residual stream."""
    known = Tap.names(model)
    for name in known:
        layer = name.removesuffix(".resid_out")
        if layer == name:
            continue
        ffn = model.get_submodule(layer).ffn
        if not getattr(ffn, "absent", False) and f"{layer}.ffn.hidden" not in known:
            raise ConfigError(
                f"path patching must hold what {layer}.ffn writes, and {type(ffn).__name__} has no tap point for it: "
                "take a model with one network per layer"
            )
    for site in editable(model):
        if any(name.endswith("w_gate") for name, _ in model.get_submodule(site.prefix).named_modules()):
            raise ConfigError(f"{site.prefix} multiplies its heads by a gate, which path patching cannot hold fixed")
    return [*(site.point("heads") for site in editable(model)), *(n for n in known if n.endswith(".ffn.hidden"))]
