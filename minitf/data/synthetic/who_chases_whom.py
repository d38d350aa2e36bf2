"""Who chases whom: a task that nothing but order decides."""

from __future__ import annotations

import numpy as np

from minitf.data.synthetic import IGNORED, Rows, SyntheticTask
from minitf.errors import ConfigError

NOUNS = {
    "en": "cat dog mouse horse bird fox cow hen boy girl ball car".split(),
    "zh": "猫 狗 鼠 马 鸟 狐 牛 鸡 男孩 女孩 球 车".split(),
}
VERBS = {
    "en": "chases sees follows finds loves hears knows meets".split(),
    "zh": "追 看见 跟 找到 爱 听见 认识 遇见".split(),
}
QUESTION = {"en": "who?", "zh": "谁？"}


class WhoChasesWhom(SyntheticTask):
    """Three words and a question, such as 猫 追 球 谁？: name the one that acts, the first noun.

    12 nouns, 8 verbs, one question; the two nouns differ, and each pair comes in both orders. A head that attends from
    the question to the first noun solves it, by its position or because the verb comes after it; all answers are right
    then. No attention: 1/12. Order-blind: the same words are seen in both orders, 1/2. Best offset: the first noun
    always stands three places back, so that is the solution.

    Args:
        language: en or zh, the words that are shown.
        form: answers: for decoders, the noun is the next token. tag: for encoders, it is the class of the question.
    """

    roles = ("agent",)

    def __init__(self, language: str, form: str) -> None:
        if language not in NOUNS:
            raise ConfigError(f"data.task.language must be en or zh, got {language!r}")
        if form not in ("answers", "tag"):
            raise ConfigError(f"data.task.form must be answers or tag, got {form!r}")
        self.language, self.form = language, form
        self._words = [*NOUNS[language], *VERBS[language], QUESTION[language]]
        self.vocab_size = len(self._words)
        self.n_classes = len(NOUNS[language]) if form == "tag" else None

    @property
    def gives(self) -> str:
        return self.form

    def check(self, seq_len: int) -> None:
        if seq_len != 4:
            raise ConfigError(f"data.seq_len ({seq_len}) must be 4 for who_chases_whom: three words and a question")

    def rows(self, rng: np.random.Generator, n: int, seq_len: int) -> Rows:
        n_nouns, n_verbs = len(NOUNS[self.language]), len(VERBS[self.language])
        agent = rng.integers(n_nouns, size=n)
        other = (agent + rng.integers(1, n_nouns, size=n)) % n_nouns
        verb = n_nouns + rng.integers(n_verbs, size=n)
        ids = np.stack([agent, verb, other, np.full(n, self.vocab_size - 1)], 1)
        targets, gold = np.full((n, 4), IGNORED), np.full((n, 4, 1), -1)
        targets[:, 3], gold[:, 3, 0] = agent, 0
        return {"ids": ids, "targets": targets, "gold.agent": gold}

    def baselines(self, seq_len: int) -> dict[str, float]:
        return {"no attention": 1 / len(NOUNS[self.language]), "order-blind": 0.5, "best offset": 1.0}

    def symbols(self, ids: list[int]) -> list[str]:
        return [self._words[i] for i in ids]

    def answer_symbols(self, ids: list[int]) -> list[str]:
        return self.symbols(ids)
