"""Run any model once and note what passes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from minitf.config import build
from minitf.errors import ConfigError
from minitf.tap import Tap


@dataclass
class Step:
    """One tensor on its way through a model.

    Attributes:
        name: of the module or tap point that made it.
        shape: of the tensor.
        weights: shapes of the module's own parameters, "" for a tap point.
        times: how often the step came.
    """

    name: str
    shape: tuple[int, ...]
    weights: str = ""
    times: int = 1


class Noted(dict):
    """Tells each activation that a tap leaves in it, in the order of the pass, and keeps none."""

    def __init__(self, note: Callable[[str, Tensor], None]) -> None:
        super().__init__()
        self.note = note

    def __setitem__(self, name: str, value: Tensor) -> None:
        self.note(name, value)


def build_model(config: DictConfig) -> nn.Module:
    """The model of a config, in evaluation mode, the same each time."""
    torch.manual_seed(config.seed)
    return build(config.model).eval()


def batch_for(model: nn.Module, data: DictConfig, batch: int, length: int, src_length: int) -> dict[str, Tensor | None]:
    """What the model's forward asks for: random ids, and no padding.

    Args:
        model: any model.
        data: the facts of the data.
        batch, length: rows B, tokens T.
        src_length: tokens S of the other sequence.

    Raises:
        ConfigError: the model asks for something else.
    """
    draw = torch.Generator().manual_seed(0)
    made: dict[str, Tensor | None] = {}
    for name, parameter in inspect.signature(model.forward).parameters.items():
        if name == "ids":
            made[name] = torch.randint(data.vocab_size, (batch, length), generator=draw)
        elif name == "src":
            made[name] = torch.randint(data.src_vocab_size, (batch, src_length), generator=draw)
        elif name in ("pos", "src_pos"):
            made[name] = None
        elif parameter.default is inspect.Parameter.empty:
            raise ConfigError(f"a demo gives ids and src; {type(model).__name__} also asks for {name}")
    return made


def record(model: nn.Module, inputs: dict[str, Tensor | None]) -> list[Step]:
    """Every module with weights of its own and every tap point, in the order in which a pass first reaches them."""
    steps: dict[str, Step] = {}

    def note(name: str, value: Tensor | tuple, weights: str = "") -> None:
        value = value if isinstance(value, Tensor) else value[0]  # a GRU gives its state as well
        if name in steps:
            steps[name].times += 1
        else:
            steps[name] = Step(name, tuple(value.shape), weights)

    hooks = []
    for name, module in model.named_modules():
        own = [f"{tuple(p.shape)}" for _, p in module.named_parameters(recurse=False)]
        if not own or not name:
            continue
        if name.endswith("w_o"):
            before = f"{name.rpartition('.')[0]}.merged heads"
            hooks.append(module.register_forward_pre_hook(lambda _, given, n=before: note(n, given[0])))
        weights = " ".join(own)
        hooks.append(module.register_forward_hook(lambda _, given, out, n=name, w=weights: note(n, out, w)))
    try:
        tap = Tap(model, at=Tap.names(model))
        tap.values = Noted(note)
        with torch.no_grad(), tap:
            model(**inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return list(steps.values())
