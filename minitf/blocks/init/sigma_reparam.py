"""Matrices of attention with a learned spectral norm."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from minitf.blocks.init import Modifier, matrices
from minitf.errors import ConfigError


class SigmaReparam(Modifier):
    """W = gamma / sigma(W) W for W_Q, W_K, W_V and W_O, sigma the largest singular value. Source: Zhai et al. 2023.

    gamma, one number per matrix, starts at 1 and is learned: scores cannot grow faster than the gammas do. The size of
    what the base rule gave is lost, its direction stays. (Zhai et al. do so with every linear layer.)

    Args:
        base: rule that fills the model first.
        exact_start: whether sigma is exact before the first step; else the power method begins at a random vector, as
            in torch.nn.utils.spectral_norm, and gives too small a sigma for some steps.

    Raises:
        ConfigError: a matrix of zeros, which has no direction.
    """

    def __init__(self, base: Callable[[nn.Module], None], exact_start: bool = True) -> None:
        super().__init__(base)
        if not isinstance(exact_start, bool):
            raise ConfigError(f"init=sigma_reparam: exact_start ({exact_start!r}) must be true or false")
        self.exact_start = exact_start

    def change(self, model: nn.Module) -> None:
        for matrix in matrices(model, "w_q", "w_k", "w_k_rotary", "w_v", "w_o", what="sigma_reparam"):
            if not matrix.weight.any():
                raise ConfigError(
                    f"init=sigma_reparam divides by the largest singular value, which is 0 for a matrix that "
                    f"init={type(self.base).__name__} starts at 0: choose another model/init@model.init.base"
                )
            parametrize.register_parametrization(matrix, "weight", SpectralScale(matrix.weight, self.exact_start))


class SpectralScale(nn.Module):
    """W -> gamma / sigma(W) W, with sigma followed by one step of the power method per training pass.

    Args:
        weight: the matrix at the start.
        exact: whether sigma is exact then; else `left` is random.
    """

    def __init__(self, weight: Tensor, exact: bool = True) -> None:
        super().__init__()
        weight = weight.detach()
        if exact:
            u, _, v = torch.linalg.svd(weight, full_matrices=False)
            left, right = u[:, 0].clone(), v[0].clone()
        else:
            left = F.normalize(torch.randn_like(weight[:, 0]), dim=0)
            right = F.normalize(weight.T @ left, dim=0)
        self.register_buffer("left", left)
        self.register_buffer("right", right)
        self.gamma = nn.Parameter(torch.ones(1, dtype=weight.dtype, device=weight.device))

    def forward(self, weight: Tensor) -> Tensor:
        """(n_out,n_in) -> (n_out,n_in)."""
        with torch.autocast(weight.device.type, enabled=False):
            if self.training and torch.is_grad_enabled():
                self._follow(weight.detach())
            # copies: a second pass before the backward pass changes the buffers
            sigma = self.left.clone() @ weight @ self.right.clone()
            return self.gamma / sigma * weight

    @torch.no_grad()
    def _follow(self, weight: Tensor) -> None:
        self.left.copy_(F.normalize(weight @ self.right, dim=0))
        self.right.copy_(F.normalize(weight.T @ self.left, dim=0))
