"""Initialisation rules: each is called once with the finished model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

import torch
from torch import nn
from torch.nn.utils import parametrize

from minitf.blocks.projection import Projection
from minitf.errors import ConfigError

_seed: ContextVar[int | None] = ContextVar("seed of draws by name", default=None)


@contextmanager
def drawn_by_name(seed: int) -> Iterator[None]:
    """While active, every rule draws each matrix and table from a generator of its own, seeded by `seed` and its name.

    Models that differ in one part then start alike in all others: a parameter of the same name, shape and rule is the
    same; where only the standard deviation differs, it is the same draw, scaled. The distributions stay as they are.
    What is no matrix or table, such as the vectors of an additive score, is drawn by its constructor as ever.

    Args:
        seed: 0 or more.
    """
    token = _seed.set(seed)
    try:
        yield
    finally:
        _seed.reset(token)


def drawing(model: nn.Module) -> Callable[..., AbstractContextManager]:
    """What a rule puts around each draw: `with draw(parameter):`; without `drawn_by_name` it does nothing.

    Args:
        model: whose names count; a shared parameter has its first one.
    """
    seed = _seed.get()
    if seed is None:
        return lambda parameter, part="": nullcontext()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return lambda parameter, part="": _own_draws(f"{seed}:{names.get(id(parameter))}{part}")


@contextmanager
def _own_draws(text: str) -> Iterator[None]:
    state = torch.default_generator.get_state()
    torch.default_generator.manual_seed(int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big"))
    try:
        yield
    finally:
        torch.default_generator.set_state(state)


class Rule:
    """The interface of every rule: it fills all matrices and tables; biases start at 0, norms stay as they are.

    What is neither nn.Linear nor nn.Embedding starts as its own constructor says. A rule that draws elsewhere than in
    `matrix` and `table` does so inside of `drawing`.
    """

    def __call__(self, model: nn.Module) -> None:
        """Fill the parameters of `model`."""
        draw = drawing(model)
        for module in model.modules():
            if isinstance(module, nn.Linear):
                with draw(module.weight):
                    self.matrix(module)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                with draw(module.weight):
                    self.table(module)

    def matrix(self, linear: nn.Linear) -> None:
        """Fill the weight of one matrix."""
        raise NotImplementedError

    def table(self, embedding: nn.Embedding) -> None:
        """Fill one table of vectors."""
        raise NotImplementedError


class Modifier:
    """The interface of every change to what another rule made.

    Args:
        base: the other rule; it may be a modifier, too.
    """

    def __init__(self, base: Callable[[nn.Module], None]) -> None:
        self.base = base

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> None:
        """Fill the parameters of `model` by the base rule, then change them.

        Raises:
            ConfigError: there is nothing to change, or it cannot be changed any more.
        """
        self.base(model)
        if any(parametrize.is_parametrized(module) for module in model.modules()):
            raise ConfigError(
                f"init={type(self).__name__} cannot change what init={type(self.base).__name__} has made: turn them "
                "round, model/init=sigma_reparam with the other rule as model/init@model.init.base"
            )
        self.change(model)

    def change(self, model: nn.Module) -> None:
        """Change the parameters of `model`, called without gradient."""
        raise NotImplementedError


def projections(model: nn.Module) -> Iterator[Projection]:
    """Every projection of a model, of self-attention and of cross-attention."""
    return (module for module in model.modules() if isinstance(module, Projection))


def matrices(model: nn.Module, *names: str, what: str) -> list[nn.Linear]:
    """The matrices with these names in all projections of a model.

    Args:
        model: any model.
        names: of the matrices, for example "w_q".
        what: the rule that asks, for the message.

    Raises:
        ConfigError: there is none.
    """
    found = [getattr(p, name) for p in projections(model) for name in names if hasattr(p, name)]
    if not found:
        raise ConfigError(
            f"init={what} changes {' and '.join(names)}, which no projection of this model has: choose "
            "model/attention/projection=free or another with it, or leave this rule away"
        )
    return found
