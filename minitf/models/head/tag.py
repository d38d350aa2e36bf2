"""A class for every token."""

from __future__ import annotations

from torch import Tensor, nn

from minitf.models.head import check_classes


class TokenHead(nn.Linear):
    """Logits of the classes of each token, one product with a matrix, and a bias.

    Args:
        d_model: width D.
        vocab_size, tied_to: not used.
        n_classes: number of classes C.

    Raises:
        ConfigError: the data has no classes.

    Source: Devlin et al. 2019 (BERT), section 5.3.
    """

    def __init__(
        self,
        *,
        d_model: int,
        vocab_size: int | None = None,
        n_classes: int | None,
        tied_to: nn.Embedding | None = None,
    ) -> None:
        check_classes(n_classes)
        super().__init__(d_model, n_classes)

    def forward(self, hidden: Tensor, pos: Tensor | None = None) -> Tensor:
        """(..., D) -> (..., C)."""
        return super().forward(hidden)
