"""Pooling: one vector of all the tokens of a row. Padding has no part in it; packed rows count as one."""

from __future__ import annotations

from torch import Tensor, nn


class Pool(nn.Module):
    """The interface."""

    def forward(self, hidden: Tensor, pos: Tensor | None) -> Tensor:
        """One vector a row.

        Args:
            hidden: (B,T,D).
            pos: (B or 1, T) positions, -1 where there is no token; None: every token is real.

        Returns:
            (B,D).
        """
        raise NotImplementedError
