"""A gated feed-forward network."""

import torch.nn.functional as F
from torch import Tensor, nn

from minitf.blocks.ffn import FeedForward


class SwiGLU(FeedForward):
    """silu(w_gate x) times w_in x. Source: Shazeer 2020, equation 6.

    d_ff: null means 8/3 * d_model, rounded up to a multiple of 8: as many parameters as GELU with 4 * d_model.
    """

    def __init__(self, *, d_model: int, d_ff: int | None = None, bias: bool = False) -> None:
        super().__init__(d_model=d_model, d_ff=d_ff, bias=bias)
        self.w_gate = nn.Linear(d_model, self.w_in.out_features, bias=bias)

    @staticmethod
    def default_width(d_model: int) -> int:
        return 8 * -(-d_model // 3)

    def hidden(self, x: Tensor) -> Tensor:
        return F.silu(self.w_gate(x)) * self.w_in(x)
