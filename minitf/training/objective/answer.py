"""Predict those next tokens that answer something."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from minitf.training.objective import EXACT, IGNORED, cross_entropy, exact_match, result
from minitf.training.objective.causal_lm import CausalLM


class Answer(CausalLM):
    """Next-token prediction where only answers are scored: only their rows go through the head.

    A batch has "ids" and "targets" (B,T), IGNORED where nothing is asked, and "pos" where it is padded. It counts
    "n_correct" and "n_exact", both with the right text before each answer, which the model need not have written.

    Args:
        chunk_rows, label_smoothing: as for `CausalLM`.
    """

    takes = "answers"
    sums = EXACT
    task = "answer"

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        hidden = model.hidden(batch["ids"], batch.get("pos"))
        scored = batch["targets"] != IGNORED
        loss, nll, right = cross_entropy(
            model.head, hidden[scored], batch["targets"][scored], self.chunk_rows, self.label_smoothing, mark=True
        )
        right = torch.zeros_like(scored).masked_scatter(scored, right)
        return result(model, loss, scored.sum(), nll, **exact_match(right, batch["targets"]))
