"""Sentences whose words have a gold, and attention between words from that between tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from minitf.errors import DataError

TO_HEAD, TO_DEPENDENT, ALL = "head of ", "dependent by ", "all"


class Tokenizer(Protocol):
    """What is asked of a tokenizer."""

    def encode(self, text: str) -> list[int]:
        """Ids of a text, whose bytes are those of the text."""

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes of an id."""


@dataclass(frozen=True)
class Sentence:
    """A sentence with its dependencies.

    Args:
        text: as it is written.
        words: first character of each word and the one after its last; in order.
        heads: for each word the number of its head, from 0; -1: it is the root.
        relations: for each word its relation to the head, such as "nsubj".
    """

    text: str
    words: tuple[tuple[int, int], ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]

    def __post_init__(self) -> None:
        n = len(self.words)
        if not n == len(self.heads) == len(self.relations):
            raise DataError(f"{n} words need as many heads and relations: {self.text!r:.60}")
        if any(not -1 <= head < n or head == own for own, head in enumerate(self.heads)):
            raise DataError(f"heads are numbers of other words from 0 to {n - 1}, or -1: {self.text!r:.60}")
        ends = (0, *(end for _, end in self.words))
        if any(not last <= a < b <= len(self.text) for last, (a, b) in zip(ends, self.words, strict=False)):
            raise DataError(f"words are pieces of the text, one after another: {self.text!r:.60}")


def sentence(words: Sequence[str], heads: Sequence[int], relations: Sequence[str], separator: str = " ") -> Sentence:
    """A sentence from its words.

    Args:
        words, heads, relations: see `Sentence`.
        separator: what stands between words: " ", or "" as in Chinese.

    Raises:
        DataError: heads that are no words, or not as many as words.
    """
    spans, place = [], 0
    for word in words:
        spans.append((place, place + len(word)))
        place += len(word) + len(separator)
    return Sentence(separator.join(words), tuple(spans), tuple(heads), tuple(relations))


def word_shares(of: Sentence, ids: Sequence[int], tokenizer: Tokenizer) -> Tensor:
    """What share of each token belongs to each word: float32 (T,W), by bytes; rows sum to 1, or 0 between words.

    Args:
        of: the sentence.
        ids: its tokens.
        tokenizer: made them.

    Raises:
        DataError: the tokens are not those of the text.
    """
    size = [len(tokenizer.token_bytes(i)) for i in ids]
    word_of: list[int] = [-1] * len(of.text.encode())
    for number, (start, end) in enumerate(of.words):
        first = len(of.text[:start].encode())
        n = len(of.text[start:end].encode())
        word_of[first : first + n] = [number] * n
    if sum(size) != len(word_of):
        raise DataError(f"{len(ids)} tokens have {sum(size)} bytes, the text {len(word_of)}: {of.text!r:.60}")
    shares = torch.zeros(len(ids), len(of.words))
    place = 0
    for token, n in enumerate(size):
        for word in word_of[place : place + n]:
            if word >= 0:
                shares[token, word] += 1
        place += n
    return shares / shares.sum(1, keepdim=True).clamp_min(1)


def word_attention(weights: Tensor, shares: Tensor) -> Tensor:
    """Attention between words: the mean over the tokens of the asking word, the sum over those of the other one.

    Args:
        weights: (H,T,T).
        shares: (T,W), from `word_shares`, with rows of 0 for tokens that are no text.

    Returns:
        (H,W,W).

    Source: Clark et al. 2019, section 4.1.
    """
    shares = shares.to(weights)
    mean = shares / shares.sum(0).clamp_min(torch.finfo(shares.dtype).tiny)
    return mean.T @ weights @ shares


def word_gold(of: Sentence, visible: Tensor) -> dict[str, Tensor]:
    """What each word must look at, int64 (W,K), -1 where nothing is asked: "head of nsubj", "dependent by nsubj", ...

    A dependent asks for its head, and a head for its dependents; "head of all" and "dependent by all" are those of all
    relations. Where the mask hides the answer, nothing is asked: a causal model has each relation in one direction.

    Args:
        of: the sentence.
        visible: bool (W,W), which word may see which.
    """
    n = len(of.words)
    links: dict[str, list[tuple[int, int]]] = {}
    for own, (head, relation) in enumerate(zip(of.heads, of.relations, strict=True)):
        if head >= 0:
            for name in (relation, ALL):
                links.setdefault(TO_HEAD + name, []).append((own, head))
                links.setdefault(TO_DEPENDENT + name, []).append((head, own))
    gold = {}
    for name, pairs in links.items():
        answers: list[list[int]] = [[] for _ in range(n)]
        for query, source in pairs:
            if visible[query, source]:
                answers[query].append(source)
        width = max(1, *map(len, answers))
        gold[name] = torch.tensor([found + [-1] * (width - len(found)) for found in answers])
    return gold
