"""How far guessing gets: the share of answers that are right for whoever knows little of a row, found by counting."""

from __future__ import annotations

import numpy as np

from minitf.data.synthetic import IGNORED, Rows

MOST_PAIRS = 2**22  # of a known token and an answer; more are not counted


def counted(rows: Rows, n_known: int, n_answers: int, sees_later: bool, offsets: bool = True) -> dict[str, float]:
    """Baselines by counting: the most frequent answers of the first half of the rows, tried on the second.

    "no attention" knows the token at hand. "best offset" knows one token at a fixed distance, the best of all
    distances: of the row itself, or of the source of an encoder-decoder, counted from the same place there.

    Args:
        rows: of a task.
        n_known: ids of the tokens that are known.
        n_answers: ids of the answers.
        sees_later: whether tokens after the place that asks may be read.
        offsets: whether "best offset" has a meaning.
    """
    if n_known * n_answers > MOST_PAIRS:
        return {}
    row, place, answer = answers(rows)
    train = row < len(next(iter(rows.values()))) // 2

    def share(known: np.ndarray) -> float:
        """`known` is -1 where there is nothing."""
        pairs = (known + 1) * n_answers + answer
        counts = np.bincount(pairs[train], minlength=(n_known + 1) * n_answers).reshape(-1, n_answers)
        return float((counts.argmax(1)[known[~train] + 1] == answer[~train]).mean())

    ids = rows["ids"]
    own = np.full_like(answer, -1) if "label" in rows else ids[row, place]
    found = {"no attention": share(own)}
    if offsets:
        text, width = (rows["src"], rows["src"].shape[1]) if "src" in rows else (ids, ids.shape[1])
        there = rows.get("src_pos" if "src" in rows else "pos")
        shares = []
        for offset in range(1 - width if sees_later else 0, width):
            column = place - offset
            inside = (column >= 0) & (column < width)
            column = column.clip(0, width - 1)
            if there is not None:
                inside &= there[row, column] >= 0
            shares.append(share(np.where(inside, text[row, column], -1)))
        found["best offset"] = max(shares)
    return found


def answers(rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row, place and answer of everything that is asked; a label stands at the last real place of its row."""
    if "label" in rows:
        n = len(rows["label"])
        last = (rows["pos"] >= 0).sum(1) - 1 if "pos" in rows else np.full(n, rows["ids"].shape[1] - 1)
        return np.arange(n), last, rows["label"]
    row, place = np.nonzero(rows["targets"] != IGNORED)
    return row, place, rows["targets"][row, place]
