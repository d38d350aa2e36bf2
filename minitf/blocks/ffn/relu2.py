"""A squared ReLU."""

import torch.nn.functional as F
from torch import Tensor

from minitf.blocks.ffn import FeedForward


class ReLU2(FeedForward):
    """max(0, x) squared. Source: So et al. 2021 (Primer)."""

    def hidden(self, x: Tensor) -> Tensor:
        return F.relu(self.w_in(x)).square()
