"""From token ids to the text that a user sees, up to a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

from minitf.errors import ConfigError


class TextStream:
    """Decodes ids one by one into whole characters and ends before the first stop string.

    The first stop string is the one that is complete first; of several that are complete at the same character, the
    longest. What may be the beginning of one is held back until it is clear, so the text does not depend on where
    tokens begin and end. Without a stop string in it, the pieces joined are `tokenizer.decode` of all ids.

    Args:
        tokenizer: a trained tokenizer; anything with `token_bytes(id)`.
        stop_strings: texts that end the text; they are not given out.

    Attributes:
        stopped: the stop string that has ended the text, or None. From then on nothing comes out.

    Raises:
        ConfigError: an empty stop string, or one text where a list of them is expected.
    """

    def __init__(self, tokenizer: Any, stop_strings: Sequence[str] = ()) -> None:
        if isinstance(stop_strings, str) or not all(isinstance(s, str) and s for s in stop_strings):
            raise ConfigError(f"stop strings must be a list of texts that are not empty, got {stop_strings!r}")
        self.stopped: str | None = None
        self._stops = tuple(stop_strings)
        self._token_bytes = tokenizer.token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def push(self, token_id: int) -> str:
        """Text that `token_id` makes certain: maybe nothing, never half a character or a part of a stop string."""
        return "" if self.stopped is not None else self._add(self._decoder.decode(self._token_bytes(token_id)))

    def flush(self) -> str:
        """The rest at the end: what was held back, and U+FFFD if the last character is incomplete."""
        if self.stopped is not None:
            return ""
        certain = self._add(self._decoder.decode(b"", final=True))
        rest, self._held = self._held, ""
        return certain + rest

    def _add(self, piece: str) -> str:
        text = self._held + piece
        found = [(text.find(stop), stop) for stop in self._stops if stop in text]
        if found:
            start, self.stopped = min(found, key=lambda f: (f[0] + len(f[1]), f[0]))
            self._held = ""
            return text[:start]
        n_held = max((_overlap(text, stop) for stop in self._stops), default=0)
        certain, self._held = text[: len(text) - n_held], text[len(text) - n_held :]
        return certain


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a beginning of `stop`, but not all of it."""
    return next(n for n in range(min(len(text), len(stop) - 1), -1, -1) if text.endswith(stop[:n]))
