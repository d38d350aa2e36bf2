"""What the residual stream would say if it ended here, and which write of it says what."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minitf.analysis.forward import Batch, evaluating, run
from minitf.analysis.places import OUT, Place, places
from minitf.errors import ConfigError
from minitf.tap import Tap


@dataclass(frozen=True)
class Attribution:
    """The logit of a token at each position as a sum of what was written into the residual stream.

    Args:
        parts: name -> float32 (B,T). "embedding" with its positions; a head as its site names it, "1.0", "cross 1.0";
            "mlp 1", the network of layer 1; "biases", of w_o, of the final norm and of the head.
        logits: float32 (B,T), the model's own: the sum of the parts.
    """

    parts: dict[str, Tensor]
    logits: Tensor


def logit_lens(model: nn.Module, batch: Batch) -> dict[str, Tensor]:
    """Logits of the residual stream before the first layer and after each one, through the final norm and the head.

    Args:
        model: in any mode; it is evaluated. Its head reads each token alone.
        batch: as for `minitf.analysis.forward.run`.

    Returns:
        name of the tap point, such as "layers.0.resid_in" or "layers.1.resid_out" -> (B,T,V); the last one is the
        model's output.

    Raises:
        ConfigError: no residual stream, or a head that reads more than a token.

    Source: nostalgebraist 2020 (logit lens).
    """
    stack, own = _stack(model)
    points = [f"{own[0].stream}.resid_in", *(f"{place.stream}{OUT}" for place in own)]
    with evaluating(model), torch.no_grad():
        with Tap(model, at=points) as tap:
            run(model, batch)
        return {name: _read_out(model, stack, tap[name]) for name in points}


def attribution(model: nn.Module, batch: Batch, tokens: Tensor, against: Tensor | None = None) -> Attribution:
    """Direct logit attribution: how much each head, network and the embedding add to the logit of a token.

    The final norm divides by what the whole stream has for a size; that divisor is held, so that the parts add up.

    Args:
        model: in any mode; it is evaluated. Norms stand before the sublayers, skips have the factor 1.
        batch: as for `minitf.analysis.forward.run`.
        tokens: int64 (B,T), the token whose logit is looked at; below 0 (nothing is asked) counts as token 0.
        against: int64 (B,T); the logit is then tokens - against, which leaves out what raises all logits.

    Raises:
        ConfigError: a head or final norm that is not linear, or layers whose writes do not add up.

    Source: Elhage et al. 2021; Wang et al. 2023, section 3.1.
    """
    stack, own = _stack(model)
    if not isinstance(model.head, nn.Linear):
        raise ConfigError(f"the head is a {type(model.head).__name__}; attribution needs a linear one")
    names = [f"{place.stream}.{point}" for place in own for point in ("resid_in", "resid_mid", "resid_out")]
    sites = [place.site for place in places(model) if place.site and place.kind in (own[0].kind, "cross")]
    with evaluating(model), torch.no_grad():
        with Tap(model, at=[*names, *(site.point("heads") for site in sites)]) as tap:
            logits = run(model, batch)
        writes = _writes(model, own, tap)
        final = tap[f"{own[-1].stream}{OUT}"]
        towards = _direction(model.head.weight, tokens)
        if against is not None:
            towards = towards - _direction(model.head.weight, against)
        towards = towards.to(final.dtype) * getattr(model, "logit_factor", 1.0)
        parts = {name: (_normed(stack.final_norm, final, x) * towards).sum(-1).float() for name, x in writes.items()}
        wanted = _pick(logits, tokens) - (0 if against is None else _pick(logits, against))
        bias = getattr(stack.final_norm, "bias", None)
        if bias is not None:
            parts["biases"] = parts["biases"] + (bias * towards).sum(-1).float()
        if model.head.bias is not None:
            own_bias = model.head.bias[tokens.clamp_min(0)]
            own_bias = own_bias - (0 if against is None else model.head.bias[against.clamp_min(0)])
            parts["biases"] = parts["biases"] + own_bias.float()
    return Attribution(parts, wanted)


def _stack(model: nn.Module) -> tuple[nn.Module, list[Place]]:
    """What ends in the head, with its layers."""
    stack = model.decoder if hasattr(model, "encode") and hasattr(model, "decoder") else model
    kind = "self" if stack is model else "decoder"
    own = [place for place in places(model) if place.stream and place.kind == kind]
    if not own or not hasattr(stack, "final_norm"):
        raise ConfigError(f"{type(model).__name__} has no residual stream between an embedding and a head")
    if getattr(model.head, "reads_memory", False) or hasattr(model.head, "pool"):
        raise ConfigError(f"{type(model.head).__name__} reads more than a token, and so no token has logits of its own")
    return stack, own


def _read_out(model: nn.Module, stack: nn.Module, x: Tensor) -> Tensor:
    hidden = stack.final_norm(x)
    factor = getattr(model, "logit_factor", 1.0)
    return model.head(hidden if factor == 1.0 else hidden * factor)


def _writes(model: nn.Module, own: list[Place], tap: Tap) -> dict[str, Tensor]:
    """Name -> (B,T,D), which add up to the end of the residual stream."""
    found = {"embedding": tap[f"{own[0].stream}.resid_in"]}
    biases = torch.zeros_like(found["embedding"])
    crosses = {place.layer: place.site for place in places(model) if place.kind == "cross"}
    for place in own:
        start, middle, end = (tap[f"{place.stream}.{point}"] for point in ("resid_in", "resid_mid", "resid_out"))
        layer = model.get_submodule(place.stream)
        x, own_sites = start, [(place.site, layer.attention_norm), (crosses.get(place.layer), layer.cross_norm)]
        for site, norm in own_sites:
            if site is None:
                continue
            if not isinstance(norm, nn.Module) or isinstance(norm, nn.ModuleList):
                raise ConfigError(f"{place.name} has no single norm before its attention: writes do not add up")
            heads, projection = tap[site.point("heads")], model.get_submodule(site.prefix).projection
            inner = norm(x)  # a gate of the projection reads it
            constant = projection.out(torch.zeros_like(heads), inner)
            for head in range(site.n_heads):
                alone = torch.zeros_like(heads)
                alone[:, head] = heads[:, head]
                found[site.name(head)] = projection.out(alone, inner) - constant
            x, biases = x + projection.out(heads, inner), biases + constant
        rest = (middle - x).norm()
        if rest > 1e-3 * middle.norm():
            raise ConfigError(
                f"what the heads of {place.name} write does not add up to the stream behind them: attribution needs "
                "model/layer=pre_norm with residual factors of 1"
            )
        found[f"mlp {place.layer}"] = end - middle
    return {**found, "biases": biases}


def _normed(norm: nn.Module, whole: Tensor, part: Tensor) -> Tensor:
    """The part of norm(whole) that comes from `part`, its divisor held; without the bias."""
    whole, part = whole.float(), part.float()
    if isinstance(norm, nn.LayerNorm):
        divisor = (whole.var(-1, correction=0, keepdim=True) + norm.eps).sqrt()
        part = part - part.mean(-1, keepdim=True)
    elif isinstance(norm, nn.RMSNorm):
        divisor = (whole.square().mean(-1, keepdim=True) + norm.eps).sqrt()
    elif isinstance(norm, nn.Identity):
        return part
    else:
        raise ConfigError(f"the final norm is a {type(norm).__name__}; attribution knows LayerNorm and RMSNorm")
    gain = 1.0 if norm.weight is None else norm.weight
    return part / divisor * gain


def _direction(table: Tensor, tokens: Tensor) -> Tensor:
    return F.embedding(tokens.clamp_min(0), table)


def _pick(logits: Tensor, tokens: Tensor) -> Tensor:
    return logits.gather(-1, tokens.clamp_min(0)[..., None])[..., 0].float()
