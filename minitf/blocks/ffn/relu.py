"""The feed-forward network of the first Transformer."""

import torch.nn.functional as F
from torch import Tensor

from minitf.blocks.ffn import FeedForward


class ReLU(FeedForward):
    """max(0, x). Source: Vaswani et al. 2017, equation 2."""

    def hidden(self, x: Tensor) -> Tensor:
        return F.relu(self.w_in(x))
