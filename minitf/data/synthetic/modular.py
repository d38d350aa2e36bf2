"""Modular arithmetic: small enough to learn by heart, and regular enough to be understood later (grokking)."""

from __future__ import annotations

import numpy as np

from minitf.data.synthetic import IGNORED, NO_SOURCE, Rows, SyntheticTask, check_number
from minitf.errors import ConfigError

SIGN = {"add": "+", "subtract": "-"}


class Modular(SyntheticTask):
    """Rows "a + b =" or "a - b =": say the result modulo `modulus`.

    Ids 0 to modulus-1 are the numbers, then come the sign and "=". All modulus^2 pairs are as likely; a pair belongs to
    training or to validation for good, and `train_share` of them (within the chance of a hash: +- 0.01 for 97^2 pairs)
    can be seen in training. So a model can learn those by heart and be no better than chance on the others, until a
    strong weight decay makes it find the rule, long after: grokking. Attention from "=" to both numbers (gold) is all
    that is needed; how they are combined is up to the layers. A solved model answers all of validation.
    No attention: "=" says nothing, 1/modulus. Order-blind: addition does not ask for order, 1; of a subtraction both
    orders are possible, 1/2 where the numbers differ. Best offset: one number says nothing about the sum, 1/modulus.

    Source: Power et al. 2022; Nanda et al. 2023.

    Args:
        modulus: 97 and 113, primes, are usual.
        operation: add or subtract.
        train_share: share of the pairs that belongs to training, from 0.05 to 0.95.
    """

    gives = "answers"
    roles = ("terms",)

    def __init__(self, modulus: int, operation: str, train_share: float) -> None:
        self.modulus = check_number("modulus", modulus, 2)
        if operation not in SIGN:
            raise ConfigError(f"data.task.operation must be add or subtract, got {operation!r}")
        if not isinstance(train_share, float) or not 0.05 <= train_share <= 0.95:
            raise ConfigError(f"data.task.train_share ({train_share!r}) must be a number from 0.05 to 0.95")
        self.operation, self.train_share = operation, train_share
        self.val_share = 1 - train_share
        self.vocab_size = modulus + 2

    def check(self, seq_len: int) -> None:
        if seq_len != 4:
            raise ConfigError(f"data.seq_len ({seq_len}) must be 4 for modular: two numbers, a sign, and =")

    def rows(self, rng: np.random.Generator, n: int, seq_len: int) -> Rows:
        a, b = rng.integers(self.modulus, size=(2, n))
        sign, equals = np.full(n, self.modulus), np.full(n, self.modulus + 1)
        targets, gold = np.full((n, 4), IGNORED), np.full((n, 4, 2), NO_SOURCE)
        targets[:, 3] = (a + b if self.operation == "add" else a - b) % self.modulus
        gold[:, 3] = [0, 2]
        return {"ids": np.stack([a, sign, b, equals], 1), "targets": targets, "gold.terms": gold}

    def baselines(self, seq_len: int) -> dict[str, float]:
        chance = 1 / self.modulus
        either = chance + (1 - chance) / 2 if self.modulus > 2 else 1.0  # modulo 2 both orders are the same
        return {
            "no attention": chance,
            "order-blind": 1.0 if self.operation == "add" else either,
            "best offset": chance,
        }

    def symbols(self, ids: list[int]) -> list[str]:
        return [str(i) if i < self.modulus else (SIGN[self.operation], "=")[i - self.modulus] for i in ids]
