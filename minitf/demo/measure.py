"""What a model really takes: operations counted by torch, bytes of the tensors that are there."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from minitf.cache.dynamic import Dynamic
from minitf.models.recurrent import Recurrent
from minitf.tap import Tap

Inputs = dict[str, Tensor | None]


@contextmanager
def by_definition(model: nn.Module) -> Iterator[None]:
    """Attention as plain matrix products: torch's counter does not see inside of its fused attention on a CPU."""
    fast = {module: module.fast for module in model.modules() if getattr(module, "fast", None) is not None}
    try:
        for module in fast:
            module.fast = None
        yield
    finally:
        for module, function in fast.items():
            module.fast = function


def forward_flops(model: nn.Module, inputs: Inputs) -> tuple[dict[str, int], Tensor]:
    """FLOPs of a forward pass by the name of the module ("" is the whole model), and the model's output."""
    with by_definition(model), torch.no_grad(), FlopCounterMode(display=False) as counter:
        output = model(**inputs)
    root = type(model).__name__
    counted = {name: sum(ops.values()) for name, ops in counter.get_flop_counts().items()}
    by_name = {name.removeprefix(f"{root}."): n for name, n in counted.items() if name.startswith(f"{root}.")}
    return {**by_name, "": counter.get_total_flops()}, output


def training_flops(model: nn.Module, inputs: Inputs) -> int:
    """FLOPs of a forward and a backward pass; leaves gradients."""
    with by_definition(model), FlopCounterMode(display=False) as counter:
        model(**inputs).float().logsumexp(-1).mean().backward()
    return counter.get_total_flops()


def training_bytes(model: nn.Module) -> tuple[int, int]:
    """Memory of the gradients that are there, and of AdamW's state after a step with them."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
    optimizer.step()
    state = [value for values in optimizer.state.values() for value in values.values()]
    gradients = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
    return gradients, sum(value.nbytes for value in state if isinstance(value, Tensor))


def score_bytes(model: nn.Module, inputs: Inputs) -> int:
    """Memory of the scores of all attention blocks, if they were all kept."""
    points = set(Tap.names(model))
    # a recurrent model shows only the weights, which are as many
    weights = {p for p in points if p.endswith(".weights") and p.removesuffix("weights") + "scores" not in points}
    names = sorted(weights | {p for p in points if p.endswith(".scores")})
    with torch.no_grad(), Tap(model, at=names) as tap:
        model(**inputs)
    return sum(value.nbytes for value in tap.values.values())


def saved_bytes(model: nn.Module, inputs: Inputs) -> int:
    """Memory of what a forward pass keeps for the backward pass, parameters not counted."""
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, Tensor] = {}

    def keep(value: Tensor) -> Tensor:
        kept[value.untyped_storage().data_ptr()] = value  # holding it, so that its address is not used again
        return value

    with saved_tensors_hooks(keep, lambda value: value):
        output = model(**inputs)
    del output
    return sum(v.untyped_storage().nbytes() for address, v in kept.items() if address not in weights)


def cache_bytes(model: nn.Module, inputs: Inputs) -> tuple[int, int] | None:
    """Memory of the caches of the model's own tokens, and of those of a source; None: the model takes no caches."""
    if getattr(model, "sees_future", True) or not hasattr(model, "new_caches"):
        return None
    if "caches" not in inspect.signature(model.hidden).parameters:  # an encoder, whatever its mask
        return None
    caches = model.new_caches(Dynamic)
    with torch.no_grad():
        if "src" in inputs:
            model.hidden(inputs["ids"], memory=model.encode(inputs["src"]), caches=caches)
        else:
            model.hidden(inputs["ids"], caches=caches)
    if isinstance(model, Recurrent):
        own = 1  # the state
    else:
        own = len(caches) // 2 if "src" in inputs else len(caches)
    return sum(c.n_bytes for c in caches[:own]), sum(c.n_bytes for c in caches[own:])


def bytes_on_paper(make: Callable[[], Tensor]) -> int:
    """Memory that a tensor would take, without taking it."""
    with torch.device("meta"):
        return make().nbytes
