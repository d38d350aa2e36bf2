"""Everything that can be said of how good a model is at its task, over one split."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from minitf.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from minitf.data.base import BaseData

    Batch = dict[str, Tensor]


class Split:
    """Rows of a split, in batches, as often as they are needed.

    Args:
        data: prepared.
        name: "val", or "train": rows in the order in which training reads them.
        n: how many of the first rows; None: all, which the rows of training, without an end, do not have.

    Attributes:
        whole: nothing is left out.

    Raises:
        ConfigError: another name, n below 1, or none for "train".
    """

    def __init__(self, data: BaseData, name: str, n: int | None) -> None:
        check_split(name, n)
        data.plan(n_steps=1)  # rows of an own batch, of one process
        self.data, self.name, self.n = data, name, n
        self.whole = name == "val" and n is None

    def __iter__(self) -> Iterator[Batch]:
        left = self.n
        for batch in self._batches():
            rows = len(batch["ids"])
            if left is not None:
                rows = min(rows, left)
                left -= rows
            yield {name: value[:rows] for name, value in batch.items()}
            if left == 0:
                return

    def _batches(self) -> Iterator[Batch]:
        if self.name == "val":
            yield from self.data.val_batches()
            return
        for step in itertools.count():
            batch = self.data.train_batch(step)
            yield {name: value for name, value in batch.items() if name != "n_scored"}


def check_split(name: str, n: int | None) -> None:
    """Raise ConfigError unless there is such a part of the data."""
    if name not in ("val", "train"):
        raise ConfigError(f"split ({name!r}) must be val or train")
    if n is not None and (not isinstance(n, int) or isinstance(n, bool) or n < 1):
        raise ConfigError(f"n ({n!r}) must be a whole number of at least 1, or null for the whole split")
    if name == "train" and n is None:
        raise ConfigError("the rows of training have no end: say how many, such as n=1000")


def measure(model: nn.Module, objective: Any, data: BaseData, split: Split) -> dict[str, Any]:
    """All scores that fit the task of a run.

    Args:
        model: as `load_run` gives it.
        objective: of the run.
        data: of the run, prepared and seen as the task wants it.
        split: rows of it.

    Returns:
        "rows" and "scored", how much there was; "scores", numbers by name; "notes", texts that belong to them.

    Raises:
        DataError: nothing is scored, or a package that a score needs is missing.
    """
    from minitf.generation.mode import evaluating
    from minitf.scoring.bleu import make_bleu
    from minitf.training.scores import scores

    notes: dict[str, str] = {}
    with evaluating(model):
        n_rows, total = summed(model, objective, split)
        n_bytes = data.val_bytes if objective.takes == "text" and split.whole else None
        found = scores(total, n_bytes)
        if objective.takes in ("classify", "tag"):
            found["macro_f1"] = f1(model, objective, data, split)
        if objective.takes == "seq2seq":
            if data.answer_text([]) is not None:
                make_bleu()  # what is missing is told before all is written
            written, references = translated(model, data, split)
            found |= written_scores(written, references, data.answer_text, notes)
    return {"rows": n_rows, "scored": int(total["n_scored"]), "scores": found, "notes": notes}


def summed(model: nn.Module, objective: Any, split: Split) -> tuple[int, dict[str, float]]:
    """Number of rows, and the sums that the objective counts, in float64, by name."""
    total, n_rows = dict.fromkeys(objective.sums, 0.0), 0
    for batch in split:
        _, metrics = objective(model, batch)
        for name in total:
            total[name] += float(metrics[name])
        n_rows += len(batch["ids"])
    return n_rows, total


def f1(model: nn.Module, objective: Any, data: BaseData, split: Split) -> float:
    """Macro F1 of a classifier or tagger; several read-outs of a token count as answers from the same classes."""
    from minitf.scoring.f1 import macro_f1
    from minitf.training.objective import IGNORED

    first = next(iter(split))
    n_readouts = first["targets"].size(2) if "targets" in first and first["targets"].dim() == 3 else 1
    n_classes = data.facts["n_classes"] // n_readouts
    return macro_f1((objective.predict(model, batch) for batch in split), n_classes, IGNORED)


def translated(model: nn.Module, data: BaseData, split: Split) -> tuple[list[list[int]], list[list[list[int]]]]:
    """What the model really writes for each source, greedily, with a cache; and all that counts as right.

    A row begins with the first id of its "ids". Where targets end with that id, it is their end, and neither belongs
    to what is compared. Nothing is longer than `data.seq_len`.
    """
    import torch

    from minitf.cache.dynamic import Dynamic
    from minitf.generation.generate import generate
    from minitf.generation.sampling import Greedy

    others = data.references() if split.name == "val" else None
    written: list[list[int]] = []
    references: list[list[list[int]]] = []
    for batch in split:
        begin = batch["ids"][:, :1]
        end = int(begin[0])
        memory_pos = batch.get("src_pos")
        steps = generate(
            model,
            begin,
            memory=model.encode(batch["src"], memory_pos),
            memory_pos=memory_pos,
            caches=model.new_caches(Dynamic),
            sampler=Greedy(),
            max_new_tokens=data.seq_len,
            stop=[end],
            pad_id=end,
        )
        rows = torch.stack([step.ids for step in steps], 1).tolist()
        written += [until(row, end) for row in rows]
        if others is None:
            references += [[until([i for i in row if i >= 0], end)] for row in batch["targets"].tolist()]
        else:
            references += [others[i] for i in batch["row"].tolist()]
    return written, references


def until(row: list[int], end: int) -> list[int]:
    """The ids before the first `end`; all of them where there is none."""
    return row[: row.index(end)] if end in row else row


def written_scores(
    written: list[list[int]],
    references: list[list[list[int]]],
    text: Callable[[list[int]], str | None],
    notes: dict[str, str],
) -> dict[str, float]:
    """Scores of what was written: error rates, and BLEU where it is a text.

    Args:
        written: rows of ids.
        references: for each row all that count as right.
        text: what ids spell, None where they are no text.
        notes: sacrebleu's signature is added here.
    """
    from minitf.scoring.bleu import corpus_bleu
    from minitf.scoring.edit import error_sums

    sums = error_sums(written, references)
    found = {"token_error_rate": sums.token_error_rate, "sequence_error_rate": sums.sequence_error_rate}
    if text(references[0][0]) is not None:
        known = [[text(row) for row in rows] for rows in references]
        found["bleu"], notes["bleu"] = corpus_bleu([text(row) for row in written], known)
    return found
