"""What the ids of a run mean: texts that people type become ids, and ids what people read, without the data."""

from __future__ import annotations

import json
from pathlib import Path

from minitf.data.items import ItemSource
from minitf.data.items.encode import END, UNKNOWN
from minitf.errors import ConfigError

SYMBOLS_FILE = "symbols.json"


class Spelling:
    """The symbols that a run folder keeps, of data that gives "seq2seq".

    Args:
        source: of the run's data; it says what the symbols of a text are.
        folder: of the run.
        n_read, n_written: ids that its model reads and writes.

    Attributes:
        end_id: begins and ends what is written.

    Raises:
        ConfigError: the folder has no table of symbols, or one of another model.
    """

    def __init__(self, source: ItemSource, folder: Path, n_read: int, n_written: int) -> None:
        self.source = source
        self._read, self._answers = (_table(folder / SYMBOLS_FILE, key) for key in ("read", "answers"))
        if (len(self._read), len(self._answers)) != (n_read, n_written):
            raise ConfigError(
                f"{folder / SYMBOLS_FILE} has {len(self._read)} symbols to be read and {len(self._answers)} to be "
                f"written, but the model of the run has {n_read} and {n_written}: was one of them changed?"
            )
        if END not in self._answers or UNKNOWN not in self._read:
            raise ConfigError(f"{folder / SYMBOLS_FILE} lacks {END} or {UNKNOWN}: was it written by minitf?")
        self._ids = {symbol: i for i, symbol in enumerate(self._read)}
        self.end_id = self._answers.index(END)

    def encode(self, text: str) -> tuple[list[int], list[str]]:
        """The ids of a text, and the symbols of it that training never read: each of them is UNKNOWN to the model.

        Args:
            text: as `source.read` takes it.
        """
        symbols = self.source.read(text)
        unknown = sorted({symbol for symbol in symbols if symbol not in self._ids})
        return [self._ids.get(symbol, self._ids[UNKNOWN]) for symbol in symbols], unknown

    def symbol(self, answer_id: int) -> str:
        """What people read for an id that was written."""
        return self._answers[answer_id]


def _table(path: Path, key: str) -> list[str]:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))[key]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}, which says what the ids of the run mean, cannot be read: {error!r:.100}") from error
    if not (isinstance(table, list) and all(isinstance(symbol, str) for symbol in table)):
        raise ConfigError(f"{path} holds no list of symbols under {key!r}: was it written by minitf?")
    return table
