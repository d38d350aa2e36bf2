"""A feed-forward network gated by GELU."""

import torch.nn.functional as F
from torch import Tensor

from minitf.blocks.ffn import GatedFeedForward


class GEGLU(GatedFeedForward):
    """gelu(w_gate x) times w_in x. Source: Shazeer 2020, equation 6."""

    def gate(self, x: Tensor) -> Tensor:
        return F.gelu(x)
