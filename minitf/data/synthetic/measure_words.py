"""Chinese measure words: the noun decides, wherever it stands."""

from __future__ import annotations

import numpy as np

from minitf.data.synthetic import COUNTED, IGNORED, NO_SOURCE, Rows, places
from minitf.data.synthetic.attractors import Attractors
from minitf.data.synthetic.packing import packed

NOUNS = {  # by the measure word that counts them
    "本": "书 词典 杂志 课本",
    "张": "桌子 床 地图 照片",
    "辆": "汽车 卡车 自行车 公交车",
    "把": "椅子 刀 伞 钥匙",
    "只": "猫 鸟 鸡 兔子",
    "条": "鱼 蛇 裙子 裤子",
    "件": "毛衣 衬衫 大衣 外套",
    "棵": "松树 柳树 苹果树 白菜",
}
PLACES = "旁边 前面 后面".split()
SUBJECTS = "我 他 她 我们".split()
VERBS = "看见 找到 发现".split()
NUMBERS = "一 两 三".split()
MEASURES = list(NOUNS)
ALL_NOUNS = " ".join(NOUNS.values()).split()
PER_MEASURE = len(ALL_NOUNS) // len(MEASURES)
WORDS = ["[pad]", "，", "的", "在", "了", *PLACES, *SUBJECTS, *VERBS, *NUMBERS, *MEASURES, *ALL_NOUNS]
ID_OF = {word: i for i, word in enumerate(WORDS)}


class MeasureWords(Attractors):
    """Sentences such as 椅子 旁边 的 书 ， 我 在 汽车 后面 看见 了 一: say which measure word comes next, 本.

    8 measure words with 4 nouns each. The topic of the sentence, the noun before the comma, is what is counted;
    `least` to `most` other nouns (attractors) stand before and behind it as parts of places, on either side with the
    same chance. Only the place of the number is scored. Attention from there to the noun before the comma (gold) solves
    it, which a layer before has to find; all answers are right then. No attention: 1/8. Nearest noun: right if no
    attractor stands behind the topic, or by chance. Order-blind: the measure word of most of the nouns. Best offset:
    the topic's most frequent distance, and chance elsewhere.

    Args:
        least, most: fewest and most attractors.
    """

    vocab_size = len(WORDS)
    roles = ("topic",)

    def rows(self, rng: np.random.Generator, n: int, seq_len: int) -> Rows:
        def words(choices: list[str], *shape: int) -> np.ndarray:
            return ID_OF[choices[0]] + rng.integers(len(choices), size=(n, *shape))

        def word(one: str, *shape: int) -> np.ndarray:
            return np.full((n, *shape), ID_OF[one])

        most = self.most
        n_attractors = rng.integers(self.least, most + 1, size=(n, 1))
        n_before = rng.binomial(n_attractors, 0.5)
        n_behind = n_attractors - n_before
        before = np.stack([words(ALL_NOUNS, most), words(PLACES, most), word("的", most)], 2).reshape(n, 3 * most)
        behind = np.stack([word("的", most), words(ALL_NOUNS, most), words(PLACES, most)], 2).reshape(n, 3 * most)
        behind[:, :1] = ID_OF["在"]
        topic = words(ALL_NOUNS)
        middle = np.stack([topic, word("，"), words(SUBJECTS)], 1)
        end = np.stack([words(VERBS), word("了"), words(NUMBERS)], 1)
        text = np.concatenate([before, middle, behind, end], 1)
        here = np.arange(3 * most)[None] // 3
        always = np.ones((n, 3), dtype=bool)
        there = np.concatenate([here < n_before, always, here < n_behind, always], 1)
        ids, real, column = packed(text, there, seq_len)
        targets, gold = np.full((n, seq_len), IGNORED), np.full((n, seq_len, 1), NO_SOURCE)
        targets[np.arange(n), column[:, -1]] = measure_of(topic)
        gold[np.arange(n), column[:, -1], 0] = column[:, 3 * most]
        return {"ids": ids, "pos": places(real), "targets": targets, "gold.topic": gold}

    def baselines(self, seq_len: int) -> dict[str, float]:
        n_attractors, chance = np.arange(self.least, self.most + 1), 1 / len(MEASURES)
        rng = np.random.default_rng(0)
        # which of the nouns is the topic their order alone says, so each of them is it with the same chance
        drawn = [rng.integers(len(MEASURES), size=(COUNTED, 1 + n, 1)) for n in n_attractors]
        share_of_most = [(one == np.arange(len(MEASURES))).mean(1).max(1).mean() for one in drawn]
        return {
            **super().baselines(seq_len),
            "no attention": chance,
            "nearest noun": float((chance + (1 - chance) * 0.5**n_attractors).mean()),
            "order-blind": float(np.mean(share_of_most)),
        }

    def symbols(self, ids: list[int]) -> list[str]:
        return [WORDS[i] for i in ids]


def measure_of(nouns: np.ndarray) -> np.ndarray:
    """Ids of the measure words of nouns."""
    return ID_OF[MEASURES[0]] + (nouns - ID_OF[ALL_NOUNS[0]]) // PER_MEASURE
