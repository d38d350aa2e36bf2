"""Between characters of a text and its tokens."""

from collections.abc import Sequence

import numpy as np

from minitf.data.tokenizer import BaseTokenizer


class TokenSpans:
    """The characters of each token of a text.

    A token that holds only a part of a character (byte-level BPE can cut one) counts as holding it, so that a
    character may belong to several tokens.

    Args:
        text: what was encoded.
        ids: its tokens (n,), without bos.
        tokenizer: made them.

    Attributes:
        starts, ends: int64 (n,), the first character of each token and the one after its last.

    Raises ValueError if the ids are not those of the text.
    """

    def __init__(self, text: str, ids: Sequence[int], tokenizer: BaseTokenizer) -> None:
        size = {i: len(tokenizer.token_bytes(i)) for i in set(map(int, ids))}
        ends = np.cumsum([size[int(i)] for i in ids], dtype=np.int64)
        content = np.frombuffer(text.encode("utf-8"), dtype=np.uint8)
        if (int(ends[-1]) if len(ends) else 0) != len(content):
            raise ValueError(f"{len(ids)} tokens do not have the {len(content)} bytes of the text")
        begins = (content & 0xC0) != 0x80  # the first byte of a character
        character = np.cumsum(begins) - 1  # of each byte
        self.starts = character[np.append(0, ends[:-1])] if len(ends) else ends
        self.ends = character[ends - 1] + 1 if len(ends) else ends

    def of(self, start: int, end: int) -> tuple[int, int]:
        """The tokens that hold any of the characters from `start` up to, not including, `end`: first, last + 1."""
        first = np.searchsorted(self.ends, start, side="right")
        return int(first), int(np.searchsorted(self.starts, end, side="left"))
