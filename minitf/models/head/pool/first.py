"""The first token of a row."""

from __future__ import annotations

from torch import Tensor

from minitf.models.head.pool import Pool


class FirstPool(Pool):
    """The first real token, which has read all others ([CLS]). Source: Devlin et al. 2019 (BERT), section 3."""

    def forward(self, hidden: Tensor, pos: Tensor | None) -> Tensor:
        if pos is None:
            return hidden[:, 0]
        first = (pos >= 0).int().argmax(1)[:, None, None]
        return hidden.gather(1, first.expand(hidden.size(0), 1, hidden.size(2)))[:, 0]
