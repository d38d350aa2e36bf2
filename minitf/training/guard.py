"""What to say, and to whom, when a loss or a gradient is no longer finite."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from minitf.errors import DataError


class Diverged(DataError):
    """A loss or gradient is not finite; the weights are still those from before the step."""


def first_not_finite(model: nn.Module, run: Callable[[], Any]) -> str | None:
    """Run again what went wrong, and return the name of the first module whose output is not finite.

    Args:
        model: the module that `run` calls.
        run: repeats the computation, with the same batch, seed and precision.

    Returns:
        A name as in model.named_modules(), the innermost one; None if every output is finite.
    """
    found: list[str] = []
    with _watched(model, found), torch.enable_grad():
        run()
    return found[0] if found else None


def first_gradient_not_finite(model: nn.Module) -> str | None:
    """Return the name of the last parameter, in the order of the model, whose gradient is not finite.

    The gradient comes from the end of the model, so the last one is where it went wrong first.

    Args:
        model: after the backward pass.
    """
    names = [n for n, p in model.named_parameters() if p.grad is not None and not torch.isfinite(p.grad).all()]
    return names[-1] if names else None


@contextmanager
def _watched(model: nn.Module, found: list[str]) -> Iterator[None]:
    """Note in `found` the names of modules in the order in which they give an output that is not finite."""

    def watch(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if not all(torch.isfinite(value).all() for value in _tensors(output)):
                found.append(name)

        return hook

    handles = [module.register_forward_hook(watch(name)) for name, module in model.named_modules() if name]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
