"""Name the class of a text."""

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor, nn

from minitf.models.head.classify import ClassifierHead
from minitf.training.objective import IGNORED, Objective, is_right, result


class Classify(Objective):
    """Classification of whole rows.

    A batch has "ids" (B,T), "pos" where it is padded, and "label" (B,), IGNORED for a row that is not scored; here
    "n_scored" counts rows. It counts "n_correct".
    """

    takes = "classify"
    heads = (ClassifierHead,)
    task = "classify"
    fits = "model=bert_tiny"
    head = "classify"

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        label, logits = batch["label"], self._logits(model, batch)
        nll = F.cross_entropy(logits, label, ignore_index=IGNORED, reduction="sum")
        return result(model, nll, (label != IGNORED).sum(), nll, n_correct=is_right(logits, label).sum())

    def predict(self, model: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Predicted and right class of each row, both (B,)."""
        return self._logits(model, batch).argmax(-1), batch["label"]

    def _logits(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        pos = batch.get("pos")
        return model.head(model.hidden(batch["ids"], pos), pos).float()  # (B,C)
