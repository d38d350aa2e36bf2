"""Counting what an answer can be guessed from: the best guess from some of a row, over many rows."""

from collections import Counter, defaultdict

import numpy as np

IGNORED = -100


def best_guess(answers, known):
    """Share of answers that are right if each guess is the most frequent answer of those with the same `known`."""
    counts = defaultdict(Counter)
    for answer, key in zip(answers, known, strict=True):
        counts[key][answer] += 1
    return sum(counter.most_common(1)[0][1] for counter in counts.values()) / len(answers)


def scored(rows):
    """(row, place, answer) of every answer; one label stands at the last real place of its row."""
    if "label" in rows:
        last = real(rows).sum(1) - 1
        return [(i, int(last[i]), int(answer)) for i, answer in enumerate(rows["label"])]
    places = np.argwhere(rows["targets"] != IGNORED)
    return [(int(i), int(t), int(rows["targets"][i, t])) for i, t in places]


def real(rows):
    """Which places of `ids` hold a token."""
    return rows["pos"] >= 0 if "pos" in rows else np.ones_like(rows["ids"], dtype=bool)


def no_attention(rows, sees_later):
    """From the token at hand; a single label is asked at no token, so nothing is known."""
    found = scored(rows)
    own = [None if "label" in rows else int(rows["ids"][i, t]) for i, t, _ in found]
    return best_guess([answer for *_, answer in found], own)


def order_blind(rows, sees_later):
    """From the token at hand and which others can be seen, in any order."""
    found, there = scored(rows), real(rows)
    known = []
    for i, t, _ in found:
        end = None if sees_later else t + 1
        seen = tuple(sorted(rows["ids"][i, :end][there[i, :end]].tolist()))
        known.append((None if "label" in rows else int(rows["ids"][i, t]), seen))
    return best_guess([answer for *_, answer in found], known)


def best_offset(rows, sees_later):
    """From one token that stands a fixed number of places before, or after where that can be seen."""
    found, width = scored(rows), rows["ids"].shape[1]
    answers = [answer for *_, answer in found]
    offsets = range(-width + 1 if sees_later else 0, width)

    def at(offset):
        places = [(i, t - offset) for i, t, _ in found]
        return [int(rows["ids"][i, s]) if 0 <= s < width else None for i, s in places]

    return max(best_guess(answers, at(offset)) for offset in offsets)


WAYS = {"no attention": no_attention, "order-blind": order_blind, "best offset": best_offset}
