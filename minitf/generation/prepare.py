"""A model made ready for decoding: the same numbers in fewer, better laid out matrices."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from minitf.blocks.attention import MultiHeadAttention
from minitf.blocks.ffn import GatedFeedForward
from minitf.blocks.norm.rms import RMSNorm
from minitf.errors import ConfigError
from minitf.generation.joined import (
    JoinedFeedForward,
    JoinedProjection,
    OneRowLinear,
    ShortRMSNorm,
    by_input,
    can_join,
    joined,
)
from minitf.generation.one_token import OneTokenAttention, OneTokenLayer, is_plain, is_short


def prepare_decode(model: nn.Module, compile: bool = False) -> nn.Module:
    """A copy of a model that decodes faster: it computes the same, up to rounding.

    Matrices that read the same vector become one, and one token's queries and keys are rotated together. Each matrix is
    stored with its inputs as rows, so that a product with one row runs through memory in order; a compiled one stays as
    it is, and is read once. The copy is for generation only: it cannot be trained, or saved as this model.

    Args:
        model: any model; it stays as it is.
        compile: make one graph of the step that reads a single token through caches. The first two such steps take
            the time of compiling it, many seconds; `cache=static` goes best with it.

    Returns:
        the copy, in evaluation mode, without gradients.

    Raises:
        ConfigError: a model that cannot be compiled.
    """
    if compile and getattr(model, "has_loop", False):
        raise ConfigError(f"compile=true: {type(model).__name__} has a loop over tokens, which no compiler takes")
    found = copy.deepcopy(model).eval().requires_grad_(False)
    for module in list(found.modules()):
        for name, part in list(module.named_children()):
            # not by remove_parametrizations: a copy shares its class with the original, which would lose them as well
            if isinstance(part, nn.Linear) and parametrize.is_parametrized(part):
                setattr(module, name, joined([part]))
    for module in list(found.modules()):
        for name, part in list(module.named_children()):
            if isinstance(part, MultiHeadAttention) and name != "cross_attention" and can_join(part.projection):
                part.projection = JoinedProjection(part.projection)
            elif isinstance(part, GatedFeedForward):
                setattr(module, name, JoinedFeedForward(part))
            elif isinstance(part, RMSNorm):
                setattr(module, name, ShortRMSNorm(part))
            elif isinstance(part, nn.Dropout):
                setattr(module, name, nn.Identity())
    for module in list(found.modules()):
        for name, part in list(module.named_children()):
            if not isinstance(part, nn.Linear):
                continue
            if compile:
                setattr(module, name, OneRowLinear(part))
            else:
                part.weight = nn.Parameter(by_input(part.weight), requires_grad=False)
    for module in list(found.modules()):
        for name, part in list(module.named_children()):
            if isinstance(part, MultiHeadAttention) and is_short(part):
                setattr(module, name, OneTokenAttention(part))
    for module in list(found.modules()):
        for name, part in list(module.named_children()):
            if is_plain(part):
                setattr(module, name, OneTokenLayer(part))
    if compile:
        found.step = with_compiled_step(found.step)
    return found


def with_compiled_step(step: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A model's `step` that is compiled for single tokens read through caches, and runs as it is otherwise."""
    # a vector is written down before a matrix reads it: it would be computed anew for every row of the matrix
    compiled = torch.compile(step, options={"realize_opcount_threshold": 1})

    def one_graph(ids: Tensor, pos: Tensor | None = None, caches: Any = None, **source: Tensor | None) -> Tensor:
        return (compiled if caches is not None and ids.size(1) == 1 else step)(ids, pos, caches, **source)

    return one_graph
