"""Agreement of a verb with its subject, across nouns that want something else."""

from __future__ import annotations

import numpy as np

from minitf.data.synthetic import IGNORED, NO_SOURCE, Rows, places
from minitf.data.synthetic.attractors import Attractors

NOUNS = "key cabinet dog tree book road house star friend river letter window".split()
PREPOSITIONS = "to of near behind".split()
FRONT = "under"  # opens a phrase before the subject
WORDS = ["[pad]", "the", ",", FRONT, *PREPOSITIONS, *NOUNS, *(f"{noun}s" for noun in NOUNS), "is", "are"]


class Agreement(Attractors):
    """Sentences such as "the key to the cabinets is": say whether the verb is "is" or "are".

    12 nouns in singular and plural. The subject is followed by `least` to `most` phrases with a noun each, of either
    number (attractors), and half of the sentences begin with one more ("under the tree ,"). Only the place before the
    verb is scored. A head that attends there to the subject (gold), the noun after a "the" that follows no
    preposition, solves it; all answers are right then. No attention: with the noun at hand, which is the subject or an
    attractor ("nearest noun"). Best offset: hardly better, since the subject's distance differs.

    Source of the phenomenon: Linzen et al. 2016.

    Args:
        least, most: fewest and most attractors behind the subject.
    """

    vocab_size = len(WORDS)
    roles = ("subject",)

    def rows(self, rng: np.random.Generator, n: int, seq_len: int) -> Rows:
        id_of = {word: i for i, word in enumerate(WORDS)}
        first_noun, first_of = id_of[NOUNS[0]], id_of[PREPOSITIONS[0]]
        n_nouns = len(NOUNS)

        def nouns(*shape: int) -> np.ndarray:
            return first_noun + rng.integers(2 * n_nouns, size=shape)

        front = rng.random(n) < 0.5
        n_attractors = rng.integers(self.least, self.most + 1, size=n)
        the = np.full(n, id_of["the"])
        opening = np.stack([np.full(n, id_of[FRONT]), the, nouns(n), np.full(n, id_of[","])], 1)
        subject = nouns(n)
        preposition = first_of + rng.integers(len(PREPOSITIONS), size=(n, self.most))
        phrases = np.stack(
            [preposition, np.repeat(the[:, None], self.most, 1), nouns(n, self.most)],
            2,
        )
        text = np.concatenate([opening, the[:, None], subject[:, None], phrases.reshape(n, -1)], 1)
        there = np.concatenate(
            [
                np.repeat(front[:, None], 4, 1),
                np.ones((n, 2), dtype=bool),
                np.repeat(np.arange(self.most) < n_attractors[:, None], 3, 1),
            ],
            1,
        )
        order = np.argsort(~there, axis=1, kind="stable")  # what is there comes first
        length = there.sum(1)
        real = np.arange(seq_len) < length[:, None]
        ids = np.zeros((n, seq_len), dtype=np.int64)
        ids[:, : text.shape[1]] = np.take_along_axis(text, order, 1)
        targets, gold = np.full((n, seq_len), IGNORED), np.full((n, seq_len, 1), NO_SOURCE)
        row, last = np.arange(n), length - 1
        targets[row, last] = np.where(subject >= first_noun + n_nouns, id_of["are"], id_of["is"])
        gold[row, last, 0] = np.where(front, 5, 1)
        return {"ids": np.where(real, ids, 0), "pos": places(real), "targets": targets, "gold.subject": gold}

    def baselines(self, seq_len: int) -> dict[str, float]:
        alone = (self.least == 0) / (self.most - self.least + 1)  # sentences without any attractor
        nearest = alone + (1 - alone) / 2
        return {**super().baselines(seq_len), "no attention": nearest, "nearest noun": nearest}

    def symbols(self, ids: list[int]) -> list[str]:
        return [WORDS[i] for i in ids]
