"""The mode in which a model is read from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluating(*models: nn.Module) -> Iterator[None]:
    """Evaluation mode, without gradients, for the time of a block; afterwards each module is as it was.

    Args:
        models: those that the block reads from; one whose own `training` is off is left alone.
    """
    training = [module for model in models if model.training for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True
