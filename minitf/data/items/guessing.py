"""How far simple models get: shares of the answers of `val` that are right, learned from `train`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from minitf.data.arrays import Rows
from minitf.data.items import Item
from minitf.data.windows import IGNORED

ALPHA = 0.1  # added to every count of naive Bayes


def most_frequent_class(train: Sequence[Item], val: Sequence[Item]) -> float:
    """Always the class that most rows of training have."""
    most = Counter(item.answer[0] for item in train).most_common(1)[0][0]
    return sum(item.answer[0] == most for item in val) / len(val)


def naive_bayes(train: Sequence[Item], val: Sequence[Item], features: Callable[[Item], Sequence[str]]) -> float:
    """The likeliest class by the features of a row, each for itself; those that training has not are passed over."""
    names = sorted({item.answer[0] for item in train})
    place: dict[str, int] = {}
    counts = [Counter() for _ in names]
    for item in train:
        counts[names.index(item.answer[0])].update(features(item))
    for feature in set().union(*counts):
        place[feature] = len(place)
    table = np.full((len(place), len(names)), ALPHA)
    for i, seen in enumerate(counts):
        for feature, n in seen.items():
            table[place[feature], i] += n
    table = np.log(table / table.sum(0))
    prior = np.log([sum(item.answer[0] == name for item in train) / len(train) for name in names])
    known = [[place[f] for f in features(item) if f in place] for item in val]
    guesses = [names[int((table[found].sum(0) + prior).argmax())] for found in known]
    return sum(guess == item.answer[0] for guess, item in zip(guesses, val, strict=True)) / len(val)


def after_the_token_before(train: Rows, val: Rows) -> float:
    """Of what is written: the symbol that most often follows the one before, whatever the source says."""
    follows: dict[int, Counter] = {}
    for before, after in zip(*_pairs(train), strict=True):
        follows.setdefault(before, Counter())[after] += 1
    guess = {before: seen.most_common(1)[0][0] for before, seen in follows.items()}
    asked = list(zip(*_pairs(val), strict=True))
    return sum(guess.get(before) == after for before, after in asked) / len(asked)


def _pairs(rows: Rows) -> tuple[list[int], list[int]]:
    scored = rows["targets"] != IGNORED
    return rows["ids"][scored].tolist(), rows["targets"][scored].tolist()
