"""The baseline that a trained model must beat: an interpolated Witten-Bell n-gram over bytes."""

from collections.abc import Iterator, Sequence

import numpy as np

ORDER = 5
CHUNK = 1 << 24  # positions that are sorted at once; bounds the memory for long texts
LAST_BYTE = np.uint64(0xFF)


class WittenBell:
    """Interpolated Witten-Bell n-gram model over bytes (Witten and Bell 1991; Chen and Goodman 1999, section 2.5).

    P(w | h) = (c(h w) + t(h) P(w | h')) / (c(h) + t(h)), where h' is h without its oldest byte, c(h) counts the bytes
    seen after h, and t(h) the different ones among them. Below the empty context stands 1/256; where h was never seen,
    P(w | h) = P(w | h').

    Args:
        documents: training texts; each starts with an empty context.
        order: bytes of the longest n-gram, 1 to 8 (context and next byte are packed into 64 bits).
    """

    def __init__(self, documents: Sequence[bytes], order: int = ORDER) -> None:
        if not 1 <= order <= 8:
            raise ValueError(f"order ({order}) must lie between 1 and 8")
        text, age = _join(documents)
        self.order = order
        self._counts = [_count(_keys(text, age, n)) for n in range(order)]

    def probabilities(self, documents: Sequence[bytes]) -> np.ndarray:
        """P of each byte of `documents` given the bytes before it in the same document: float64 (all bytes,)."""
        text, age = _join(documents)
        p = np.full(len(text), 1.0 / 256.0)
        for n, (grams, before) in enumerate(self._counts):
            for at, keys in _keys(text, age, n):
                order = np.argsort(keys)  # then neighbouring look-ups touch neighbouring memory
                _interpolate(p, at[order], keys[order], grams, before)
        return p


def witten_bell_bits_per_byte(train_docs: Sequence[bytes], val_docs: Sequence[bytes], order: int = ORDER) -> float:
    """Mean -log2 P per byte of `val_docs` under a `WittenBell` model of `train_docs`.

    Args:
        train_docs: texts to count.
        val_docs: texts to predict; at least one byte in all.
        order: bytes of the longest n-gram.
    """
    return float(-np.log2(WittenBell(train_docs, order).probabilities(val_docs)).mean())


def _interpolate(p: np.ndarray, at: np.ndarray, keys: np.ndarray, grams: np.ndarray, before: np.ndarray) -> None:
    """Mix one more order into `p` at the places `at`; n-grams that share a context are neighbours in `grams`."""
    first = np.searchsorted(grams, keys & ~LAST_BYTE)
    end = np.searchsorted(grams, keys | LAST_BYTE, side="right")
    left = np.searchsorted(grams, keys, side="left")
    right = np.searchsorted(grams, keys, side="right")
    count, types, joint = before[end] - before[first], end - first, before[right] - before[left]
    known = count > 0
    at, count, types, joint = at[known], count[known], types[known], joint[known]
    p[at] = (joint + types * p[at]) / (count + types)


def _join(documents: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """All bytes in a row, and for each the number of bytes before it in its document (at most 255)."""
    text = np.frombuffer(b"".join(documents), dtype=np.uint8)
    age = np.full(len(text), 255, dtype=np.uint8)
    start = 0
    for document in documents:
        young = min(len(document), 255)
        age[start : start + young] = np.arange(young)
        start += len(document)
    return text, age


def _keys(text: np.ndarray, age: np.ndarray, n: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(place, key) of each byte that has n bytes before it in its document, in chunks of the text.

    The key packs those n bytes and the byte itself into one number, the oldest byte highest.
    """
    for start in range(0, len(text), CHUNK):
        end = min(start + CHUNK, len(text))
        key = np.zeros(end - start, dtype=np.uint64)
        for back in range(min(n, end - 1), -1, -1):
            key <<= np.uint64(8)
            skip = max(0, back - start)
            key[skip:] |= text[start + skip - back : end - back]
        at = np.flatnonzero(age[start:end] >= n)
        yield start + at, key[at]


def _count(chunks: Iterator[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Different keys in order (m,), and how many of all keys are smaller than each of them and in all (m + 1,)."""
    keys, counts = np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64)
    for _, chunk in chunks:
        new = _runs(np.sort(chunk), np.ones(len(chunk), dtype=np.int64))
        keys, counts = _merged((keys, counts), new) if len(keys) else new
    return keys, np.concatenate([[0], np.cumsum(counts)])


def _merged(a: tuple[np.ndarray, np.ndarray], b: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    keys, counts = np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]])
    order = np.argsort(keys, kind="stable")  # quick on two sorted runs
    return _runs(keys[order], counts[order])


def _runs(keys: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorted keys with equal ones joined and their counts added."""
    if len(keys) == 0:
        return keys, counts
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    return keys[first], np.add.reduceat(counts, first)
