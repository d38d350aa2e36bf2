"""Initialisation rules: each is called once with the finished model."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn.utils import parametrize

from minitf.blocks.projection import Projection
from minitf.errors import ConfigError


class Rule:
    """The interface of every rule: it fills all matrices and tables; biases start at 0, norms stay as they are.

    What is neither nn.Linear nor nn.Embedding starts as its own constructor says.
    """

    def __call__(self, model: nn.Module) -> None:
        """Fill the parameters of `model`."""
        for module in model.modules():
            if isinstance(module, nn.Linear):
                self.matrix(module)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
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
