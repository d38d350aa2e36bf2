"""Repetition of one segment, then of another."""

from __future__ import annotations

import numpy as np

from minitf.data.synthetic import NO_SOURCE, Rows
from minitf.data.synthetic.repeat import Repeat
from minitf.errors import ConfigError


class RepeatSwitch(Repeat):
    """The beginning token, a segment again and again, and from some column on a second one of other symbols.

    So a model learns that what is repeated can change, and can be asked for a segment that begins anywhere. Every next
    token is scored, as in `RepeatText`, and gold has what a model can know: from the second symbol of a segment's
    second round on. Both segments come at least once; where the second one begins is drawn for each row, as are both
    lengths. Baselines are not counted, many places being chance.

    Args:
        n_symbols, least, most: as for `Repeat`.

    Raises:
        ConfigError: fewer symbols than two of the longest segments need.
    """

    def __init__(self, n_symbols: int, least: int, most: int) -> None:
        super().__init__(n_symbols, least, most)
        if 2 * most > n_symbols:
            raise ConfigError(
                f"data.task: n_symbols ({n_symbols}) must be at least twice most ({most}): the symbols of two segments "
                "differ"
            )

    def rows(self, rng: np.random.Generator, n: int, seq_len: int) -> Rows:
        periods = rng.integers(self.least, self.most + 1, size=(2, n, 1))
        symbols = 1 + rng.permuted(np.tile(np.arange(self.n_symbols), (n, 1)), axis=1)
        begin = rng.integers(1 + periods[0], seq_len + 1 - periods[1])  # column of the second segment
        column = np.arange(seq_len + 1)[None]
        second = column >= begin
        period = np.where(second, *periods[::-1])
        place = column - np.where(second, begin, 1)  # within the text of its segment
        text = np.take_along_axis(symbols, place % period + np.where(second, self.most, 0), 1)
        text = np.where(column == 0, 0, text)
        source = np.where(place > period, column - period, NO_SOURCE)  # the first symbol of a round comes unannounced
        return {"ids": text[:, :-1], "targets": text[:, 1:], "gold.repeat": source[:, 1:, None]}

    def baselines(self, seq_len: int) -> dict[str, float]:
        return {}
