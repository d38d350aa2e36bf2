"""Repetition where every next token is asked for."""

from __future__ import annotations

import numpy as np

from minitf.data.synthetic import NO_SOURCE, Rows
from minitf.data.synthetic.repeat import Repeat


class RepeatText(Repeat):
    """The rows of `Repeat` as a text: each next token is scored, those of the first round too, which are all chance.

    So a model also learns what to do while there is nothing to copy, and the loss of later rounds can be compared with
    that of the first. Gold has what a model can know: the first symbol of the second round is not yet among it, since
    nothing says that a round is over; nor are baselines counted, most places being chance.

    Source: Olsson et al. 2022 (in-context score; repeated random tokens).

    Args:
        n_symbols, least, most: as for `Repeat`.
    """

    def rows(self, rng: np.random.Generator, n: int, seq_len: int) -> Rows:
        found = super().rows(rng, n, seq_len)
        source = found["gold.repeat"]
        # column 0 is the beginning token: a source of column 1 is that of the first symbol, of any round
        first = (np.cumsum(source >= 0, axis=1) == 1) & (source >= 0)
        targets = found["targets"].copy()
        known = targets >= 0
        targets[:, :-1] = found["ids"][:, 1:]
        targets[:, -1] = np.where(known[:, -1], found["targets"][:, -1], targets[:, -1])
        return {**found, "targets": targets, "gold.repeat": np.where(first, NO_SOURCE, source)}

    def baselines(self, seq_len: int) -> dict[str, float]:
        return {}
