"""Uniform values, each head by itself."""

import torch
from torch import nn

from minitf.blocks.init import drawing, projections
from minitf.blocks.init.xavier import Xavier


class XavierPerHead(Xavier):
    """Xavier with each head's slice as a matrix of its own: larger values. Source: Glorot and Bengio 2010, equation 16.

    A slice of d_head x d_model has fewer outputs than all heads together: at d_model 512 and d_head 64 the scores of
    unit-variance inputs start with a standard deviation of 1.78, with fused matrices it is 1.00.
    """

    def __call__(self, model: nn.Module) -> None:
        super().__call__(model)
        draw = drawing(model)
        with torch.no_grad():
            for projection in projections(model):
                for name, slices in projection.by_head().items():
                    with draw(getattr(projection, name).weight):
                        for one in slices:
                            nn.init.xavier_uniform_(one)
