"""Predict a place of the source."""

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor, nn

from minitf.models.head.pointer import PointerHead
from minitf.training.objective import EXACT, IGNORED, Objective, exact_match, is_right, result


class Pointer(Objective):
    """Point at the source: each target is a place 0 to S-1 of "src", counted with its padding.

    A batch has "src" (B,S), "ids" and "targets" (B,T), and "src_pos", "pos" where they are padded. It counts
    "n_correct" and "n_exact", rows that are right as a whole.

    Source: Vinyals, Fortunato and Jaitly 2015 (Pointer Networks).
    """

    takes = "pointer"
    sums = EXACT
    needs_causal = True
    reads_source = True
    heads = (PointerHead,)
    task = "pointer"
    fits = "model=pointer_tiny"
    head = "pointer"

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        src_pos = batch.get("src_pos")
        memory = model.encode(batch["src"], src_pos)
        hidden = model.hidden(batch["ids"], batch.get("pos"), memory=memory, memory_pos=src_pos)
        logits = model.head(hidden, memory, src_pos).flatten(0, 1).float()  # (B*T,S)
        targets = batch["targets"].flatten()
        nll = F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")
        right = is_right(logits, targets)
        return result(model, nll, (targets != IGNORED).sum(), nll, **exact_match(right, batch["targets"]))
