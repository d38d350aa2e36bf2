"""Predict those next tokens that answer something."""

from collections.abc import Mapping

from torch import Tensor, nn

from minitf.training.objective import IGNORED, cross_entropy, result
from minitf.training.objective.causal_lm import CausalLM


class Answer(CausalLM):
    """Next-token prediction where only answers are scored: only their rows go through the head.

    A batch has "ids" and "targets" (B,T), IGNORED where nothing is asked, and "pos" where it is padded. It counts
    "n_correct".

    Args:
        chunk_rows, label_smoothing: as for `CausalLM`.
    """

    takes = "answers"
    sums = ("nll", "n_scored", "n_correct")
    task = "answer"

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        hidden = model.hidden(batch["ids"], batch.get("pos"))
        scored = batch["targets"] != IGNORED
        loss, nll, correct = cross_entropy(
            model.head, hidden[scored], batch["targets"][scored], self.chunk_rows, self.label_smoothing, count=True
        )
        return result(model, loss, scored.sum(), nll, n_correct=correct)
