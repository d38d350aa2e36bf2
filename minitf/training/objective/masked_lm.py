"""Restore hidden tokens."""

from collections.abc import Mapping

from torch import Tensor, nn

from minitf.models.head.lm import LMHead
from minitf.models.head.masked_lm import MaskedLMHead
from minitf.training.objective import IGNORED, Objective, check_chunk_rows, cross_entropy, result


class MaskedLM(Objective):
    """Masked language modelling: the token that stood at each chosen place.

    A batch has "ids", in which the data has hidden tokens as `corruption` says, and "targets" (B,T), the hidden tokens,
    IGNORED elsewhere. Only the scored rows go through the head. It counts "n_correct".

    Args:
        rate, mask, random: see `minitf.data.masking.MaskTokens`, which checks them.
        chunk_rows: how many rows (tokens) go through the head and the loss at a time; None: all at once.

    Raises:
        ConfigError: chunk_rows is below 1.

    Source: Devlin et al. 2019 (BERT), section 3.1.
    """

    takes = "hidden_text"
    heads = (LMHead, MaskedLMHead)
    task = "masked_lm"
    fits = "model=bert_tiny"
    head = "masked_lm"

    def __init__(
        self, rate: float = 0.15, mask: float = 0.8, random: float = 0.1, chunk_rows: int | None = None
    ) -> None:
        check_chunk_rows(chunk_rows)
        self.rate, self.mask, self.random, self.chunk_rows = rate, mask, random, chunk_rows

    @property
    def corruption(self) -> dict[str, float]:
        """The arguments of the `MaskTokens` that hides tokens for this objective."""
        return {"rate": self.rate, "mask": self.mask, "random": self.random}

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        hidden = model.hidden(batch["ids"], batch.get("pos"))
        scored = batch["targets"] != IGNORED
        loss, nll, right = cross_entropy(
            model.head, hidden[scored], batch["targets"][scored], self.chunk_rows, mark=True
        )
        return result(model, loss, scored.sum(), nll, n_correct=right.sum())
