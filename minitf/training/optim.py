"""Optimizers: AdamW, and Muon for the matrices with AdamW for the rest, as one optimizer object."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized
from torch.optim import AdamW, Optimizer

from minitf.errors import ConfigError
from minitf.training.muon import Muon

MAX_RATE, MAX_DECAY = 1e30, 1e6  # their product must fit into float32
MAX_NS_STEPS = 100  # torch's own limit


def adamw(
    model: nn.Module,
    lr: float,
    weight_decay: float = 0.1,
    betas: tuple[float, float] = (0.9, 0.95),
    eps: float = 1e-8,
    decay_vectors: bool = False,
) -> AdamW:
    """Build fused AdamW (Loshchilov and Hutter 2019) with two groups: decayed tensors, and the rest.

    Args:
        model: whose parameters that require a gradient are trained; a shared one counts once.
        lr: learning rate, above 0.
        weight_decay: decoupled decay; what is taken off per step is lr * weight_decay.
        betas: decay rates of the two running means.
        eps: added to the denominator.
        decay_vectors: decay norms, biases and everything else of one dimension, too.

    Raises:
        ConfigError: a number out of range, or nothing to train.
    """
    _check(weight_decay, betas, eps, lr=lr)
    if not isinstance(decay_vectors, bool):
        raise ConfigError(f"optim.decay_vectors ({decay_vectors!r}) must be true or false")
    groups = _decay_groups(_trainable(model), weight_decay, least_ndim=0 if decay_vectors else 2)
    return AdamW(groups, lr=lr, betas=_floats(betas), eps=eps, fused=True)


def muon(
    model: nn.Module,
    lr: float,
    adamw_lr: float,
    momentum: float = 0.95,
    weight_decay: float = 0.1,
    ns_steps: int = 5,
    betas: tuple[float, float] = (0.9, 0.95),
    eps: float = 1e-8,
) -> "MuonAdamW":
    """Build Muon (Jordan et al. 2024) for the matrices inside the layers and AdamW for everything else.

    The update of a matrix is scaled by 0.2 * sqrt(its longer side), so that its size compares with AdamW's
    (Liu et al. 2025, "Muon is scalable for LLM training", eq. 4).

    Args:
        model: whose parameters that require a gradient are trained; a shared one counts once.
        lr: learning rate of the matrices, above 0.
        adamw_lr: learning rate of the rest (embeddings, head, position tables, norms, biases), above 0.
        momentum: decay rate of Muon's running mean (Nesterov form).
        weight_decay: decoupled decay, for both; norms, biases and the like are not decayed.
        ns_steps: Newton-Schulz iterations that make an update nearly orthogonal.
        betas: AdamW's decay rates of the two running means.
        eps: AdamW's addition to the denominator.

    Raises:
        ConfigError: a number out of range, or a model without such matrices.
    """
    _check(weight_decay, betas, eps, lr=lr, adamw_lr=adamw_lr)
    if not _is_share(momentum):
        raise ConfigError(f"optim.momentum ({momentum}) must lie from 0 up to, not including, 1; 0.95 is usual")
    if not (isinstance(ns_steps, int) and 1 <= ns_steps < MAX_NS_STEPS):
        raise ConfigError(
            f"optim.ns_steps ({ns_steps}) must be a whole number from 1 to {MAX_NS_STEPS - 1}; 5 is usual"
        )
    matrices = layer_matrices(model)
    if not matrices:
        raise ConfigError("optim=muon found no weight matrix in this model's layers; use optim=adamw")
    taken = {id(p) for p in matrices}
    rest = [p for p in _trainable(model) if id(p) not in taken]
    return MuonAdamW(
        Muon(matrices, lr, momentum, weight_decay, ns_steps),
        AdamW(_decay_groups(rest, weight_decay), lr=adamw_lr, betas=_floats(betas), eps=eps, fused=True),
    )


def layer_matrices(model: nn.Module) -> list[nn.Parameter]:
    """Return the weights of the model's nn.Linear modules, but not of its head nor any that embeds tokens.

    Told apart by what the modules are, not by their names, so that it holds for a new model too. `model.head`
    is left out where it is a module, and so is a weight shared with an nn.Embedding.

    Args:
        model: any module.

    Returns:
        Each parameter once, in the order of model.modules(); those without gradient are left out.
    """
    head = getattr(model, "head", None)
    outside = {id(p) for p in head.parameters()} if isinstance(head, nn.Module) else set()
    outside |= {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    found = {
        id(weight): weight
        for m in model.modules()
        if isinstance(m, nn.Linear) and (weight := _leaf(m)) is not None
        if weight.requires_grad and id(weight) not in outside
    }
    return list(found.values())


def _leaf(linear: nn.Linear) -> nn.Parameter | None:
    """The matrix that is trained, also behind a weight computed from it; None where that is not one matrix."""
    if not is_parametrized(linear, "weight"):
        return linear.weight
    return getattr(linear.parametrizations.weight, "original", None)


class MuonAdamW(Optimizer):
    """Two optimizers over disjoint parameters that look like one.

    The groups and the state are the members' own objects, so a scheduler, gradient clipping and state_dict see
    all parameters at once, and a state_dict holds plain containers and tensors only.

    Args:
        muon: the optimizer of the matrices.
        adamw: the optimizer of the rest.
    """

    def __init__(self, muon: Muon, adamw: AdamW) -> None:
        self.muon, self.adamw = muon, adamw
        self._n_muon_groups = len(muon.param_groups)
        super().__init__([*muon.param_groups, *adamw.param_groups], defaults={})
        self._share()

    def _share(self) -> None:
        """Let both members work on this object's groups and state."""
        self.muon.param_groups = self.param_groups[: self._n_muon_groups]
        self.adamw.param_groups = self.param_groups[self._n_muon_groups :]
        self.muon.state = self.adamw.state = self.state

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step with both; the closure, if there is one, is evaluated once."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.muon.step()
        self.adamw.step()
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state_dict of the same groups.

        Args:
            state_dict: what state_dict() of an optimizer over the same parameters returned.

        Raises:
            ValueError: the groups do not fit.
        """
        super().load_state_dict(state_dict)
        self._share()  # the base class replaces the groups and the state by new objects


def _trainable(model: nn.Module) -> list[nn.Parameter]:
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise ConfigError("the model has no parameter that requires a gradient: there is nothing to train")
    return parameters


def _decay_groups(parameters: Iterable[Tensor], weight_decay: float, least_ndim: int = 2) -> list[dict[str, Any]]:
    parameters = list(parameters)
    groups = [
        {"params": [p for p in parameters if p.ndim >= least_ndim], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < least_ndim], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def _check(weight_decay: float, betas: Sequence[float], eps: float, **rates: float) -> None:
    for name, rate in rates.items():
        if not (_is_number(rate) and 0 < rate <= MAX_RATE):
            raise ConfigError(
                f"optim.{name} ({rate}) must be a finite number above 0, up to {MAX_RATE:g}; "
                "3e-3 is a usual start for a small model"
            )
    if not (_is_number(weight_decay) and 0 <= weight_decay <= MAX_DECAY):
        raise ConfigError(
            f"optim.weight_decay ({weight_decay}) must be a finite number, 0 or more, up to {MAX_DECAY:g}; 0 is off"
        )
    if not (isinstance(betas, list | tuple) and len(betas) == 2 and all(map(_is_share, betas))):
        raise ConfigError(
            f"optim.betas ({betas}) must be two numbers from 0 up to, not including, 1; [0.9,0.95] is usual"
        )
    if not (_is_number(eps) and 0 < eps <= 1):
        raise ConfigError(f"optim.eps ({eps}) must be a finite number above 0, up to 1; 1e-8 is usual")


def _floats(betas: Sequence[float]) -> tuple[float, ...]:
    """Torch refuses a mixture such as (0, 0.95)."""
    return tuple(map(float, betas))


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value < 1


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
