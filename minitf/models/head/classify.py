"""A class for every row."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from minitf.models.head import check_classes
from minitf.models.head.pool import Pool


class ClassifierHead(nn.Linear):
    """Logits of the classes of each row: its hidden states pooled, one product with a matrix, and a bias.

    Args:
        d_model: width D.
        vocab_size, tied_to: not used.
        n_classes: number of classes C.
        pool: factory of what makes one vector of a row.

    Raises:
        ConfigError: the data has no classes.

    Source: Devlin et al. 2019 (BERT), section 4.1.
    """

    def __init__(
        self,
        *,
        d_model: int,
        vocab_size: int | None = None,
        n_classes: int | None,
        tied_to: nn.Embedding | None = None,
        pool: Callable[[], Pool],
    ) -> None:
        check_classes(n_classes)
        super().__init__(d_model, n_classes)
        self.pool = pool()

    def forward(self, hidden: Tensor, pos: Tensor | None = None) -> Tensor:
        """(B,T,D), positions (B or 1, T) or None -> (B,C)."""
        return super().forward(self.pool(hidden, pos))
