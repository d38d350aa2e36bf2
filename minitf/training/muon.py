"""Muon's update in the number format that the hardware multiplies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn, optim

from minitf.training.precision import has_bf16


class Muon(optim.Muon):
    """torch's Muon, but for Newton-Schulz in float32 where bfloat16 would be emulated.

    torch's own rounds to bfloat16 everywhere, and a CPU that has no instructions for it takes many times as long as in
    float32. On hardware that has them the results are torch's, bit by bit. Source: Jordan et al. 2024, "Muon: an
    optimizer for hidden layers in neural networks"; the size of an update by Liu et al. 2025, "Muon is scalable for
    LLM training", eq. 4.

    Args:
        matrices: parameters of two dimensions.
        lr: learning rate.
        momentum: decay rate of the running mean (Nesterov form).
        weight_decay: decoupled decay.
        ns_steps: Newton-Schulz iterations.
    """

    def __init__(
        self, matrices: Iterable[nn.Parameter], lr: float, momentum: float, weight_decay: float, ns_steps: int
    ) -> None:
        super().__init__(
            matrices,
            lr=lr,
            momentum=momentum,
            weight_decay=weight_decay,
            ns_steps=ns_steps,
            adjust_lr_fn="match_rms_adamw",
        )

    @torch.no_grad()
    def step(self) -> None:
        """Take one step with every matrix that has a gradient; a closure is for the optimizer that holds this one."""
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is not None:
                    self._update(matrix, group)

    def _update(self, matrix: Tensor, group: dict[str, Any]) -> None:
        state = self.state[matrix]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(matrix.grad, memory_format=torch.preserve_format)
        mean, momentum, lr = state["momentum_buffer"], group["momentum"], float(group["lr"])
        mean.lerp_(matrix.grad, 1 - momentum)
        ahead = matrix.grad.lerp(mean, momentum)  # Nesterov's form
        update = orthogonal(ahead, group["ns_coefficients"], group["ns_steps"], group["eps"])
        matrix.mul_(1 - lr * group["weight_decay"])
        matrix.add_(update, alpha=-(lr * (0.2 * math.sqrt(max(matrix.shape)))))


def orthogonal(matrix: Tensor, coefficients: Sequence[float], n_steps: int, eps: float) -> Tensor:
    """Newton-Schulz: s -> a s + b s^3 + c s^5 of every singular value, n_steps times, begun at s / ||matrix||_F.

    Args:
        matrix: (rows, columns).
        coefficients: a, b, c; (3.4445, -4.775, 2.0315) brings all but the smallest to 0.7 to 1.2 in five steps.
        n_steps: how often.
        eps: least norm that is divided by.

    Returns:
        As large as the matrix: bfloat16 where its device has instructions for that, else float32.
    """
    a, b, c = coefficients
    x = matrix.to(torch.bfloat16 if has_bf16(matrix.device.type) else torch.float32, copy=True)
    tall = x.size(0) > x.size(1)
    if tall:
        x = x.T
    x.div_(x.norm().clamp(min=eps))
    for _ in range(n_steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x
