"""The mean over a row."""

from __future__ import annotations

from torch import Tensor

from minitf.models.head.pool import Pool


class MeanPool(Pool):
    """The mean over the real tokens; zeros where there are none. Source: Reimers and Gurevych 2019, section 3."""

    def forward(self, hidden: Tensor, pos: Tensor | None) -> Tensor:
        if pos is None:
            return hidden.mean(1)
        real = (pos >= 0)[..., None]
        n_real = real.sum(1).clamp(min=1).to(hidden.dtype)
        # where, not a product: what stands at padding may be anything
        return hidden.masked_fill(~real, 0).sum(1) / n_real
