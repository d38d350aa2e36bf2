"""Name the class of every token."""

from collections.abc import Mapping

from torch import Tensor, nn

from minitf.blocks.checks import check_probability
from minitf.models.head.tag import TokenHead
from minitf.training.objective import EXACT, IGNORED, Objective, cross_entropy, exact_match, result


class TagTokens(Objective):
    """Tagging: a class for each token, or several classes, one from each read-out.

    A batch has "ids", "targets", the classes, and "pos" where it is padded. It counts "n_correct"
    and "n_exact", the rows in which every class is right. With "targets" (B,T,R) there are R read-outs: the outputs of
    the head, C in all, are R groups of C / R classes.

    Args:
        label_smoothing: share of the target's probability that is spread over the classes of its read-out; "nll" stays
            that of the target.

    Raises:
        ConfigError: label_smoothing is no probability.
    """

    takes = "tag"
    sums = EXACT
    heads = (TokenHead,)
    task = "tag"
    fits = "model=bert_tiny"
    head = "tag"

    def __init__(self, label_smoothing: float = 0.0) -> None:
        check_probability("label_smoothing", label_smoothing)
        self.label_smoothing = label_smoothing

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        hidden = model.hidden(batch["ids"], batch.get("pos"))
        targets = batch["targets"].flatten()
        n_readouts = batch["targets"].size(2) if batch["targets"].dim() == 3 else 1

        def read_out(rows: Tensor) -> Tensor:
            return model.head(rows).unflatten(-1, (n_readouts, -1)).flatten(0, 1)

        head = model.head if n_readouts == 1 else read_out
        loss, nll, right = cross_entropy(
            head, hidden.flatten(0, 1), targets, label_smoothing=self.label_smoothing, mark=True
        )
        return result(model, loss, (targets != IGNORED).sum(), nll, **exact_match(right, batch["targets"]))

    def predict(self, model: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Predicted and right class of each token and read-out, both as "targets"."""
        targets = batch["targets"]
        n_readouts = targets.size(2) if targets.dim() == 3 else 1
        logits = model.head(model.hidden(batch["ids"], batch.get("pos"))).float()
        return logits.unflatten(-1, (n_readouts, -1)).argmax(-1).view_as(targets), targets
