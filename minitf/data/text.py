"""What every text source yields, and the two ways to split it: by document, or by place in the text."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from minitf.errors import ConfigError


@dataclass
class Documents:
    """Texts of the two splits, made before anything is cut into windows.

    Args:
        train: documents to learn from.
        val: documents to measure on; no document, and no place of a document, is in both.
        record: plain values kept with the run: where the text comes from, its version, its size, how it was split.
        val_names: a name per document of `val`, for messages.
    """

    train: list[str]
    val: list[str]
    record: dict
    val_names: list[str] = field(default_factory=list)

    def content_hash(self) -> str:
        """sha256 over every document of both splits, in order."""
        digest = hashlib.sha256()
        for split in (self.train, self.val):
            digest.update(f"split {len(split)}\n".encode())
            for text in split:
                content = text.encode("utf-8", "surrogatepass")
                digest.update(f"document {len(content)}\n".encode())
                digest.update(content)
        return digest.hexdigest()


def check_val_fraction(val_fraction: float) -> float:
    """`val_fraction` itself. Raises ConfigError unless it lies between 0 and 1, both left out."""
    if not 0.0 < val_fraction < 1.0:
        raise ConfigError(f"data.source.val_fraction ({val_fraction}) must lie between 0 and 1, for example 0.05")
    return val_fraction


def in_validation(keys: Sequence[str], sizes: Sequence[int], val_fraction: float) -> list[bool]:
    """Which documents are validation: in the order of their keys' hashes, until `val_fraction` of the text is reached.

    A document longer than that whole part is passed over, unless there is no other.

    Args:
        keys: one text per document; equal keys fall on the same side. Neither their order nor the machine matters.
        sizes: characters of each document.
        val_fraction: part of the characters, between 0 and 1.
    """
    size_of: dict[str, int] = {}
    for key, size in zip(keys, sizes, strict=True):
        size_of[key] = size_of.get(key, 0) + size
    budget = val_fraction * sum(sizes)
    chosen: set[str] = set()
    taken = 0
    for key in sorted(size_of, key=_hash):
        if taken >= budget:
            break
        if size_of[key] <= budget:
            chosen.add(key)
            taken += size_of[key]
    if not chosen and size_of:
        chosen.add(min(size_of, key=size_of.__getitem__))
    return [key in chosen for key in keys]


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def split_by_place(text: str, val_fraction: float) -> tuple[str, str]:
    """The first 1 - `val_fraction` of the characters and the rest."""
    cut = round(len(text) * (1.0 - val_fraction))
    return text[:cut], text[cut:]
