"""Predict the next token."""

from collections.abc import Mapping

from torch import Tensor, nn

from minitf.blocks.checks import check_probability
from minitf.models.head.lm import LMHead
from minitf.models.head.masked_lm import MaskedLMHead
from minitf.training.objective import IGNORED, Objective, check_chunk_rows, cross_entropy, result


class CausalLM(Objective):
    """Next-token prediction: the mean negative log-likelihood over the scored tokens, in nats.

    A batch has "ids" and "targets" (B,T).

    Args:
        chunk_rows: how many rows (tokens) go through the head and the loss at a time; None: all at once.
            The value of the loss does not depend on it. Large vocabularies gain: a chunk of float32 logits
            stays in the cache.
        label_smoothing: share of the target's probability that is spread over the whole vocabulary; "nll" stays that
            of the target.

    Raises:
        ConfigError: chunk_rows is below 1, label_smoothing no probability.
    """

    takes = "text"
    sums = ("nll", "n_scored")
    needs_causal = True
    heads = (LMHead, MaskedLMHead)
    task = "causal_lm"
    fits = "model=gpt_tiny or llama_tiny"
    head = "lm"

    def __init__(self, chunk_rows: int | None = None, label_smoothing: float = 0.0) -> None:
        check_chunk_rows(chunk_rows)
        check_probability("label_smoothing", label_smoothing)
        self.chunk_rows, self.label_smoothing = chunk_rows, label_smoothing

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        hidden = model.hidden(batch["ids"], batch.get("pos"))
        targets = batch["targets"].flatten()
        loss, nll, _ = cross_entropy(
            model.head, hidden.flatten(0, 1), targets, self.chunk_rows, label_smoothing=self.label_smoothing
        )
        return result(model, loss, (targets != IGNORED).sum(), nll)
