"""Which noun a pronoun stands for."""

from __future__ import annotations

import numpy as np

from minitf.data.synthetic import IGNORED, NO_SOURCE, Rows, SyntheticTask, places
from minitf.errors import ConfigError

ANIMALS = {
    "en": "cat dog mouse horse bird fox cow hen bear goat pig wolf".split(),
    "zh": "猫 狗 鼠 马 鸟 狐 牛 鸡 熊 羊 猪 狼".split(),
}
THINGS = {
    "en": "mat box ball bag chair bed cup hat book coat cart drum".split(),
    "zh": "垫 箱 球 包 椅 床 杯 帽 书 衣 车 鼓".split(),
}
# an animal does it to a thing, a thing to an animal, an animal to an animal
VERBS = {
    "en": (["sat_on", "touched", "carried", "watched"], ["fell_on", "hid", "hit", "rolled_to"], ["chased", "saw"]),
    "zh": (["追", "摸", "推", "看"], ["砸到", "挡住", "碰到", "滚向"], ["赶", "看见"]),
}
OF_ANIMALS = {"en": "tired hungry asleep happy afraid thirsty".split(), "zh": "累 饿 困 高兴 怕 渴".split()}
OF_THINGS = {"en": "flat empty broken folded cracked wooden".split(), "zh": "破 空 扁 旧 裂 皱".split()}
FRAME = {"en": ("the", ".", "it", "was", "who?"), "zh": ("", "，", "它", "了", "谁？")}


class Coreference(SyntheticTask):
    """Sentences such as "the cat sat_on the mat . it was tired who?" and 猫 追 球 ， 它 累 了 谁？: name what "it" is.

    Only the question is scored. variant=property: one noun is an animal, one a thing, in either order; what is said of
    "it" (tired, flat) decides which is meant. A solved model attends to that word (gold "property") and to the noun
    that fits (gold "referent"). variant=order: both are animals, and "it" is always the first one, so only order
    decides. All answers are right in a solved model. No attention: one of the nouns, 1/24 (order: 1/12). Order-blind:
    property is solved without order; order: 1/2. Best offset: the noun at one place is right in half of the rows
    (order: always, since the first noun always stands at the same place).

    Args:
        variant: property or order.
        language: en or zh.
    """

    gives = "answers"

    def __init__(self, variant: str, language: str) -> None:
        if variant not in ("property", "order"):
            raise ConfigError(f"data.task.variant must be property or order, got {variant!r}")
        if language not in FRAME:
            raise ConfigError(f"data.task.language must be en or zh, got {language!r}")
        self.variant, self.language = variant, language
        self._words = ["[pad]", *(word for word in FRAME[language] if word)]
        parts = (ANIMALS[language], THINGS[language], *VERBS[language], OF_ANIMALS[language], OF_THINGS[language])
        self._first = []  # id of the first word of each part
        for part in parts:
            self._first.append(len(self._words))
            self._words += part
        self._sizes = [len(part) for part in parts]
        self.vocab_size = len(self._words)

    @property
    def roles(self) -> tuple[str, ...]:
        return ("referent", "property") if self.variant == "property" else ("referent",)

    @property
    def length(self) -> int:
        """Tokens of every sentence."""
        return 10 if self.language == "en" else 8

    def check(self, seq_len: int) -> None:
        if seq_len < self.length:
            raise ConfigError(f"data.seq_len ({seq_len}) must be at least {self.length}, the length of these sentences")

    def rows(self, rng: np.random.Generator, n: int, seq_len: int) -> Rows:
        def words(part: int) -> np.ndarray:
            return self._first[part] + rng.integers(self._sizes[part], size=n)

        animal = words(0)
        if self.variant == "order":
            step = rng.integers(1, self._sizes[0], size=n)
            other = self._first[0] + (animal - self._first[0] + step) % self._sizes[0]
            first, second, verb, said, meant = animal, other, words(4), words(5), animal
        else:
            thing, acts, of_animal = words(1), rng.random(n) < 0.5, rng.random(n) < 0.5
            first, second = np.where(acts, animal, thing), np.where(acts, thing, animal)
            verb, said = np.where(acts, words(2), words(3)), np.where(of_animal, words(5), words(6))
            meant = np.where(of_animal, animal, thing)
        text, at = self._sentence(first, verb, second, said)
        ids = np.zeros((n, seq_len), dtype=np.int64)
        ids[:, : self.length] = text
        last = self.length - 1
        real = np.broadcast_to(np.arange(seq_len) < self.length, ids.shape)
        targets, gold = np.full((n, seq_len), IGNORED), np.full((n, seq_len, 1), NO_SOURCE)
        targets[:, last] = meant
        gold[:, last, 0] = np.where(meant == first, at["first"], at["second"])
        rows = {"ids": ids, "pos": places(real), "targets": targets, "gold.referent": gold}
        if self.variant == "property":
            rows["gold.property"] = np.where(gold >= 0, at["said"], NO_SOURCE)
        return rows

    def _sentence(
        self, first: np.ndarray, verb: np.ndarray, second: np.ndarray, said: np.ndarray
    ) -> tuple[np.ndarray, dict[str, int]]:
        """The words in their order, (n, length), and where the three that matter stand."""
        fixed = {word: np.full_like(first, self._words.index(word)) for word in FRAME[self.language] if word}
        the, stop, it, was, who = FRAME[self.language]
        if self.language == "en":
            order = [fixed[the], first, verb, fixed[the], second, fixed[stop], fixed[it], fixed[was], said, fixed[who]]
            return np.stack(order, 1), {"first": 1, "second": 4, "said": 8}
        order = [first, verb, second, fixed[stop], fixed[it], said, fixed[was], fixed[who]]
        return np.stack(order, 1), {"first": 0, "second": 2, "said": 5}

    def baselines(self, seq_len: int) -> dict[str, float]:
        if self.variant == "order":
            return {"no attention": 1 / self._sizes[0], "order-blind": 0.5, "best offset": 1.0}
        return {"no attention": 1 / (self._sizes[0] + self._sizes[1]), "order-blind": 1.0, "best offset": 0.5}

    def symbols(self, ids: list[int]) -> list[str]:
        return [self._words[i] for i in ids]
