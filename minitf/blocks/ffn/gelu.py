"""A smooth ReLU."""

import torch.nn.functional as F
from torch import Tensor

from minitf.blocks.ffn import FeedForward


class GELU(FeedForward):
    """x times the normal distribution function of x, exact. Source: Hendrycks and Gimpel 2016."""

    def hidden(self, x: Tensor) -> Tensor:
        return F.gelu(self.w_in(x))
