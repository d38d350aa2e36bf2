"""A position scheme during one pass of a stack."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from minitf.blocks.position import Position


class OncePerPass:
    """What several layers ask of a scheme for the very same positions is computed once.

    Made anew for each pass, so nothing in it can be out of date. A cache gives each layer key positions of its own,
    and then a bias is made for each.

    Args:
        scheme: of the stack.
    """

    def __init__(self, scheme: Position) -> None:
        self.scheme = scheme
        self.uses = scheme.uses
        self._table: tuple[Tensor, torch.dtype, Any] | None = None
        self._bias: tuple[Tensor, Tensor, Tensor | None] | None = None

    def rotate(self, x: Tensor, pos: Tensor) -> Tensor:
        """As the scheme does."""
        if self._table is None or self._table[0] is not pos or self._table[1] != x.dtype:
            self._table = (pos, x.dtype, self.scheme.turns(pos, x.dtype))
        table = self._table[2]
        return self.scheme.rotate(x, pos) if table is None else self.scheme.rotate(x, pos, table)

    def bias(self, q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
        """As the scheme does."""
        if self._bias is None or self._bias[0] is not q_pos or self._bias[1] is not k_pos:
            self._bias = (q_pos, k_pos, self.scheme.bias(q_pos, k_pos))
        return self._bias[2]
