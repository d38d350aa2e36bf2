"""A feed-forward network gated by SiLU."""

import torch.nn.functional as F
from torch import Tensor

from minitf.blocks.ffn import GatedFeedForward


class SwiGLU(GatedFeedForward):
    """silu(w_gate x) times w_in x. Source: Shazeer 2020, equation 6."""

    def gate(self, x: Tensor) -> Tensor:
        return F.silu(x)
