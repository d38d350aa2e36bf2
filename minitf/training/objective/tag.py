"""Name the class of every token."""

from collections.abc import Mapping

from torch import Tensor, nn

from minitf.models.head.tag import TokenHead
from minitf.training.objective import IGNORED, Objective, cross_entropy, result


class TagTokens(Objective):
    """Tagging: a class for each token.

    A batch has "ids" and "targets" (B,T), the classes, and "pos" where it is padded. It counts "n_correct".
    """

    takes = "tag"
    heads = (TokenHead,)
    task = "tag"
    fits = "model=bert_tiny"
    head = "tag"

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        hidden = model.hidden(batch["ids"], batch.get("pos"))
        targets = batch["targets"].flatten()
        loss, nll, correct = cross_entropy(model.head, hidden.flatten(0, 1), targets, count=True)
        return result(model, loss, (targets != IGNORED).sum(), nll, n_correct=correct)
