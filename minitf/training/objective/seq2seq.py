"""Predict the next token of a target from a source and the target so far."""

from collections.abc import Mapping

from torch import Tensor, nn

from minitf.blocks.checks import check_probability
from minitf.models.head.lm import LMHead
from minitf.models.head.masked_lm import MaskedLMHead
from minitf.training.objective import EXACT, IGNORED, Objective, check_chunk_rows, cross_entropy, exact_match, result


class Seq2Seq(Objective):
    """Sequence to sequence: the next token of the target, with label smoothing over the scored tokens alone.

    A batch has "src" (B,S), "ids" and "targets" (B,T), and "src_pos", "pos" where they are padded. It counts
    "n_correct" and "n_exact", the rows in which every scored token, the end too, has the largest logit.

    Those are the rows that greedy decoding writes exactly, although here the model reads the right target and there
    its own text: up to its first wrong token the two are the same text, and a row with a wrong token is not exact.

    Args:
        label_smoothing: share of the target's probability that is spread over the whole vocabulary. The loss holds
            it; "nll", which validation reports, does not.
        chunk_rows: how many rows (tokens) go through the head and the loss at a time; None: all at once.

    Raises:
        ConfigError: chunk_rows is below 1, label_smoothing no probability.

    Source: Vaswani et al. 2017, section 5.4.
    """

    takes = "seq2seq"
    sums = EXACT
    needs_causal = True
    reads_source = True
    heads = (LMHead, MaskedLMHead)
    task = "seq2seq"
    fits = "model=encdec_tiny"
    head = "lm"

    def __init__(self, label_smoothing: float = 0.0, chunk_rows: int | None = None) -> None:
        check_chunk_rows(chunk_rows)
        check_probability("label_smoothing", label_smoothing)
        self.label_smoothing, self.chunk_rows = label_smoothing, chunk_rows

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        src_pos = batch.get("src_pos")
        memory = model.encode(batch["src"], src_pos)
        hidden = model.hidden(batch["ids"], batch.get("pos"), memory=memory, memory_pos=src_pos)
        targets = batch["targets"].flatten()
        loss, nll, right = cross_entropy(
            model.head, hidden.flatten(0, 1), targets, self.chunk_rows, self.label_smoothing, mark=True
        )
        return result(model, loss, (targets != IGNORED).sum(), nll, **exact_match(right, batch["targets"]))
