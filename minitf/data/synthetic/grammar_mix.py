"""Several rules of a language in one text: what heads are probed with."""

from __future__ import annotations

import numpy as np

from minitf.data.synthetic import COUNTED, IGNORED, NO_SOURCE, Rows, SyntheticTask
from minitf.data.synthetic.packing import packed
from minitf.errors import ConfigError

PARTS = {
    "verb": "turn take look put bring give throw fill see push pull hand".split(),
    "particle": "on off up down back away out in through aside apart over".split(),  # of these verbs
    "object": "lamp coat page bag tool toy rag form plan chair cord note".split(),
    "animal": "cat dog mouse horse bird fox cow hen".split(),
    "thing": "ball mat box cup hat book cart drum".split(),
    "deed": "hits touches meets passes blocks nears follows leaves".split(),
    "of_animal": "tired hungry asleep thirsty".split(),
    "of_thing": "flat empty broken dusty".split(),
    "singular": "key tree road house star friend river letter window cabinet".split(),
    "plural": "keys trees roads houses stars friends rivers letters windows cabinets".split(),
    "preposition": "to near behind".split(),
    "name": [f"k{i}" for i in range(10)],
    "value": [f"v{i}" for i in range(10)],
}
WORDS = ["[bos]", ".", "it", "is", "are", *(word for words in PARTS.values() for word in words)]
ID_OF = {word: i for i, word in enumerate(WORDS)}
ROLES = ("local", "coreference", "agreement", "copy")  # one for each kind of clause
WIDTH = 7  # tokens of the longest clause
SHORTEST = 4
ANSWER = np.array([2, 5, 5, 5])  # which token of each kind of clause is the answer


class GrammarMix(SyntheticTask):
    """Clauses of four kinds after a beginning, each kind as likely; one word of each clause is asked for.

    local, "turn lamp on .": the particle that belongs to the verb before the object, 12 of them. coreference,
    "ball hits cat it tired cat .": the noun that has the property; the clause has one of 8 animals and one of 8 things.
    agreement, "key to houses near tree is .": whether is or are follows, which the first noun decides across one or two
    others. copy, "k3 v7 k5 v1 k3 v7 .": the value that the clause gave to a name. 116 words. Each answer must be read
    from one token (gold, under the name of the kind): attention to the place before; to the noun of a class, among
    those of this clause; to the first word of the clause; to the token after the same name, which takes two layers. All
    answers are right in a solved model. One head can serve several kinds, since no place asks for two tokens.
    No attention: 1/12, 1/8, 1/2 and 1/10 of the kinds. Best offset: the place before, which says the particle and one
    of two values. Order-blind in the clause: 1, 1, 7/8 (the other two nouns may differ) and 1/2.

    The kinds are those of the usual stories about heads, which are told of larger models.
    """

    gives = "answers"
    roles = ROLES

    def __init__(self) -> None:
        self.vocab_size = len(WORDS)

    def check(self, seq_len: int) -> None:
        if seq_len < WIDTH - 1:
            raise ConfigError(f"data.seq_len ({seq_len}) must be at least {WIDTH - 1}, or no clause has its answer")

    def rows(self, rng: np.random.Generator, n: int, seq_len: int) -> Rows:
        n_clauses = -(-seq_len // SHORTEST)
        kind = rng.integers(len(ROLES), size=(n, n_clauses))
        made = [make(rng, kind.shape) for make in (_local, _coreference, _agreement, _copy)]
        text, there, source = (np.choose(_like(kind, part[0]), part) for part in zip(*made, strict=True))
        bos = np.zeros((n, 1), dtype=np.int64)
        text = np.concatenate([bos, text.reshape(n, -1)], 1)
        there = np.concatenate([bos == 0, there.reshape(n, -1)], 1)
        ids, _, column = packed(text, there, seq_len + 1)
        first = 1 + WIDTH * np.arange(n_clauses)
        asked = np.take_along_axis(column, first + ANSWER[kind], 1) - 1
        read = np.take_along_axis(column, first + source, 1)
        row, clause = np.nonzero(asked < seq_len)
        place, kinds = asked[row, clause], kind[row, clause]
        targets = np.full((n, seq_len), IGNORED)
        targets[row, place] = ids[row, place + 1]
        gold = np.full((len(ROLES), n, seq_len, 1), NO_SOURCE)
        gold[kinds, row, place, 0] = read[row, clause]
        return {
            "ids": ids[:, :-1],
            "targets": targets,
            **{f"gold.{role}": one for role, one in zip(ROLES, gold, strict=True)},
        }

    def baselines(self, seq_len: int) -> dict[str, float]:
        rows = self.rows(np.random.default_rng(0), COUNTED, seq_len)
        asked = [int((rows[f"gold.{role}"] != NO_SOURCE).sum()) for role in ROLES]
        return {
            **super().baselines(seq_len),
            "no attention": float(np.average([1 / 12, 1 / 8, 1 / 2, 1 / 10], weights=asked)),
            "order-blind in the clause": float(np.average([1, 1, 7 / 8, 1 / 2], weights=asked)),
        }

    def symbols(self, ids: list[int]) -> list[str]:
        return [WORDS[i] for i in ids]


Clauses = tuple[np.ndarray, np.ndarray, np.ndarray]  # words, which of them are there (..., WIDTH), and what is read


def _like(kind: np.ndarray, array: np.ndarray) -> np.ndarray:
    return kind.reshape(kind.shape + (1,) * (array.ndim - kind.ndim))


def _words(rng: np.random.Generator, part: str, shape: tuple[int, ...]) -> np.ndarray:
    return ID_OF[PARTS[part][0]] + rng.integers(len(PARTS[part]), size=shape)


def _two(rng: np.random.Generator, part: str, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Two different words of a part."""
    first, size = rng.integers(len(PARTS[part]), size=shape), len(PARTS[part])
    second = (first + rng.integers(1, size, size=shape)) % size
    return ID_OF[PARTS[part][0]] + first, ID_OF[PARTS[part][0]] + second


def _clauses(words: list[np.ndarray | str], source: np.ndarray | int) -> Clauses:
    shape = next(word.shape for word in words if not isinstance(word, str))
    words = [np.full(shape, ID_OF[word]) if isinstance(word, str) else word for word in words]
    missing = WIDTH - len(words)
    text = np.stack(words + [np.zeros(shape, dtype=np.int64)] * missing, -1)
    there = np.broadcast_to(np.arange(WIDTH) < len(words), text.shape)
    return text, there, np.broadcast_to(source, shape)


def _local(rng: np.random.Generator, shape: tuple[int, ...]) -> Clauses:
    verb = _words(rng, "verb", shape)
    particle = verb - ID_OF[PARTS["verb"][0]] + ID_OF[PARTS["particle"][0]]
    return _clauses([verb, _words(rng, "object", shape), particle, "."], 0)


def _coreference(rng: np.random.Generator, shape: tuple[int, ...]) -> Clauses:
    animal, thing = _words(rng, "animal", shape), _words(rng, "thing", shape)
    acts, meant = rng.random((2, *shape)) < 0.5  # whether the animal does
    first, second = np.where(acts, animal, thing), np.where(acts, thing, animal)
    said = np.where(meant, _words(rng, "of_animal", shape), _words(rng, "of_thing", shape))
    answer, source = np.where(meant, animal, thing), np.where(meant == acts, 0, 2)
    return _clauses([first, _words(rng, "deed", shape), second, "it", said, answer, "."], source)


def _agreement(rng: np.random.Generator, shape: tuple[int, ...]) -> Clauses:
    plural = rng.random((3, *shape)) < 0.5
    nouns = np.where(plural, _words(rng, "plural", plural.shape), _words(rng, "singular", plural.shape))
    before = _words(rng, "preposition", (2, *shape))
    verb = np.where(plural[0], ID_OF["are"], ID_OF["is"])
    text, there, source = _clauses([nouns[0], before[0], nouns[1], before[1], nouns[2], verb, "."], 0)
    there = there.copy()
    there[..., 3:5] = rng.random((*shape, 1)) < 0.5
    return text, there, source


def _copy(rng: np.random.Generator, shape: tuple[int, ...]) -> Clauses:
    names, values = _two(rng, "name", shape), _two(rng, "value", shape)
    first = rng.random(shape) < 0.5
    asked, answer = np.where(first, *names), np.where(first, *values)
    return _clauses([names[0], values[0], names[1], values[1], asked, answer, "."], np.where(first, 1, 3))
