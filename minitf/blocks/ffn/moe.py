"""A mixture of experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minitf.blocks.checks import check_finite, check_memory, check_positive
from minitf.errors import ConfigError


class MoE(nn.Module):
    """Each token is read by the top_k of n_experts networks that a router rates highest; their outputs are averaged.

    The weights of the average are the softmax over the top_k ratings alone, as in Mixtral. No expert has a limit of
    tokens, so a token's result never depends on another one. Source: Jiang et al. 2024 (Mixtral), section 2.1; balance
    loss: Fedus et al. 2021 (Switch), equations 4 to 6, with every one of a token's top_k choices counted.

    Args:
        d_model: width D.
        n_experts: number of experts N.
        top_k: experts per token, at least 2: the weight of a single one is always 1, which teaches the router nothing.
        balance: factor of the balance loss; 0.0 switches it off. It is that of one pass: cut into micro-batches, or
            spread over processes, a step balances each part alone.
        expert: factory of the networks.

    Attributes:
        aux_loss: balance * N * sum over experts of (share of the choices * mean probability), from the last pass while
            training, padding included; None otherwise. It is balance * 1 where all experts are chosen alike.

    Raises:
        ConfigError: numbers that do not fit.
    """

    def __init__(
        self,
        *,
        d_model: int,
        expert: Callable[..., nn.Module],
        n_experts: int = 4,
        top_k: int = 2,
        balance: float = 0.01,
    ) -> None:
        super().__init__()
        check_positive(n_experts=n_experts, top_k=top_k)
        if not 2 <= top_k <= n_experts:
            raise ConfigError(
                f"top_k ({top_k}) must be from 2 to n_experts ({n_experts}): the weight of a single expert would "
                "always be 1, and the router would learn nothing"
            )
        check_finite(balance=balance)
        if balance < 0:
            raise ConfigError(f"balance must be 0 or more, got {balance!r}: 0.01 is usual")
        first = expert(d_model=d_model)
        check_memory(n_experts * sum(p.numel() for p in first.parameters()), f"a mixture of n_experts={n_experts}")
        self.experts = nn.ModuleList([first, *(expert(d_model=d_model) for _ in range(n_experts - 1))])
        self.router = nn.Linear(d_model, n_experts, bias=False)
        self.top_k, self.balance = top_k, balance
        self.aux_loss: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """(B,T,D) -> (B,T,D)."""
        tokens = x.flatten(0, -2)
        ratings = self.router(tokens).float()  # (B*T,N)
        best, chosen = ratings.topk(self.top_k)
        self.aux_loss = self.balance * unevenness(ratings, chosen) if self.training and self.balance else None
        read = self._read(tokens, chosen)
        return (read * best.softmax(-1)[..., None].to(read.dtype)).sum(1).view_as(x)

    def _read(self, tokens: Tensor, chosen: Tensor) -> Tensor:
        """What each token's experts make of it: (n,D) and their numbers (n,k) -> (n,k,D)."""
        by_expert = chosen.flatten().argsort(stable=True)
        counts = chosen.flatten().bincount(minlength=len(self.experts)).tolist()
        sorted_tokens = tokens[by_expert // self.top_k]
        # an expert that nobody chose gets an empty piece: its gradient is zero, not missing
        pieces = zip(self.experts, sorted_tokens.split(counts), strict=True)
        read = torch.cat([expert(piece) for expert, piece in pieces])
        return read[by_expert.argsort()].view(*chosen.shape, -1)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "aux_loss": None}  # a tensor with a history can neither be copied nor stored


def unevenness(ratings: Tensor, chosen: Tensor) -> Tensor:
    """1 where every expert is chosen alike, up to N / top_k where always the same ones are.

    Args:
        ratings: (n,N) of every expert for every token.
        chosen: int64 (n,k), the experts of each token.

    Returns:
        A scalar; its gradient goes through the probabilities, not the choice.
    """
    n_experts = ratings.size(-1)
    share = F.one_hot(chosen, n_experts).to(ratings.dtype).mean((0, 1))
    return n_experts * (share * ratings.softmax(-1).mean(0)).sum()
