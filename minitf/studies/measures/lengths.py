"""How well long rows are answered, and how well short ones."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from minitf.analysis.forward import IGNORED, Batch, answers, evaluating, is_right
from minitf.errors import ConfigError
from minitf.studies.loop import Subject


@torch.no_grad()
def by_length(subject: Subject, role: str, upto: Sequence[int]) -> dict[str, float]:
    """Scores of the validation rows, apart by the number of tokens that are read: of the source, where there is one.

    Args:
        subject: its data has gold for `role`, and rows of several lengths.
        role: of the gold. Answers without a source, such as the end, do not count in accuracy: a short row has as many
            of them as a long one, so that accuracy would fall with length whatever the model does.
        upto: longest row of each group, rising; a group begins behind the one before it.

    Returns:
        For each group, such as 8: "accuracy.8", the share of answers that are right, and "exact.8", the share of rows
        in which all are, the end too. "fall", accuracy of the first group minus that of the last: 0 where length does
        not matter. Accuracy counts tokens, so it does not fall by itself with length, as exact match does.

    Raises:
        ConfigError: groups that do not rise, one without a row, or rows longer than all of them; no such role.
    """
    if list(upto) != sorted(set(upto)) or len(upto) < 2:
        raise ConfigError(f"upto must be two or more rising lengths, such as [4,8,16], got {list(upto)}")
    sums = torch.zeros(len(upto), 4)  # right answers, answers, exact rows, rows
    with evaluating(subject.model):
        for batch in subject.data.val_batches():
            if f"gold.{role}" not in batch:
                there = ", ".join(name.removeprefix("gold.") for name in batch if name.startswith("gold."))
                raise ConfigError(f"the data has no role {role!r}; there are: {there or 'none'}")
            right, asked = is_right(subject.model, batch), answers(batch) != IGNORED
            counts = asked & (batch[f"gold.{role}"] >= 0).any(-1)
            group = torch.bucketize(_lengths(batch), torch.tensor(upto))
            if int(group.max()) == len(upto):
                raise ConfigError(f"some rows are longer than {upto[-1]}, the last of upto: give it a longer one")
            exact = (right == asked).all(1)
            found = torch.stack([(right & counts).sum(1), counts.sum(1), exact, torch.ones_like(exact)], 1).float()
            sums.index_add_(0, group, found)
    if empty := [length for length, n in zip(upto, sums[:, 3].tolist(), strict=True) if not n]:
        raise ConfigError(f"no row of the validation split is in the group of upto={empty[0]}")
    accuracy, exact = (sums[:, 0] / sums[:, 1]).tolist(), (sums[:, 2] / sums[:, 3]).tolist()
    scores = {f"accuracy.{length}": value for length, value in zip(upto, accuracy, strict=True)}
    scores |= {f"exact.{length}": value for length, value in zip(upto, exact, strict=True)}
    return {**scores, "fall": accuracy[0] - accuracy[-1]}


def _lengths(batch: Batch) -> Tensor:
    """Real tokens of each row (B,)."""
    ids, pos = (batch["src"], batch.get("src_pos")) if "src" in batch else (batch["ids"], batch.get("pos"))
    return torch.full((len(ids),), ids.size(1)) if pos is None else (pos >= 0).sum(1).expand(len(ids))
