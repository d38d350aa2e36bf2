"""Do heads follow the dependencies of sentences? Gold of words, attention of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from minitf.analysis.capture import MAX_BYTES, capture
from minitf.analysis.heads.average import Average
from minitf.analysis.heads.measure import ACCURACY, MASS, Measured
from minitf.analysis.heads.roles import asked, gold_offsets, score
from minitf.analysis.heads.shuffled import shuffled
from minitf.analysis.sites import Site
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


def measure_syntax(
    model: nn.Module,
    sentences: Iterable[Sentence],
    tokenizer: Tokenizer,
    *,
    bos: int | None,
    n_shuffles: int = 0,
    seed: int = 0,
    max_bytes: int = MAX_BYTES,
) -> dict[Site, Measured]:
    """How often each head of self-attention looks at the right word, by relation; the word itself does not count.

    The accuracy of "head of all" is the UAS of a head, over words whose head can be seen. The share of the best fixed
    offset, in words, stands beside each. Give the result to `battery.reports` for names.

    Args:
        model: one that reads a row of tokens.
        sentences: with gold.
        tokenizer: of the model.
        bos: the id that rows of the model begin with; None: there is none.
        n_shuffles: how often the distances are dealt out anew, see `shuffled.Shuffled`.
        seed: of the shuffles.
        max_bytes: see `capture`.

    Returns:
        site -> "accuracy:<role>" and "mass:<role>" for the roles of `word_gold`.

    Raises:
        DataError: no sentences, or tokens that do not spell them.

    Source: Clark et al. 2019, section 4.2; Voita et al. 2019, section 5.2.
    """
    sentences = list(sentences)
    seen: dict[Site, list[tuple[Tensor, Tensor]]] = {}
    for one in sentences:
        for site, weights, visible in _words(model, one, tokenizer, bos, max_bytes):
            seen.setdefault(site, []).append((weights, visible))
    if not seen:
        raise DataError("there is nothing to measure: no sentences, or a model without self-attention")
    generator = torch.Generator().manual_seed(seed)
    return {site: _relations(sentences, words, n_shuffles, generator) for site, words in seen.items()}


def _words(
    model: nn.Module, of: Sentence, tokenizer: Tokenizer, bos: int | None, max_bytes: int
) -> Iterable[tuple[Site, Tensor, Tensor]]:
    """For each site the attention between words (H,W,W) without that to themselves, and which word sees which."""
    ids = tokenizer.encode(of.text)
    shares = word_shares(of, ids, tokenizer)
    begin = [] if bos is None else [bos]
    shares = torch.cat([torch.zeros(len(begin), shares.size(1)), shares])
    device = next(model.parameters()).device
    batch = {"ids": torch.tensor([begin + list(ids)], device=device)}
    own = torch.eye(len(of.words), dtype=torch.bool)
    for found in capture(model, batch, max_bytes=max_bytes):
        visible = word_attention(found.visible.float().cpu(), shares)[0] > 0
        weights = word_attention(found.weights[0].cpu(), shares)
        yield found.site, weights.masked_fill(own, 0.0), visible & ~own


def _relations(
    sentences: Sequence[Sentence], seen: Sequence[tuple[Tensor, Tensor]], n_shuffles: int, generator: torch.Generator
) -> Measured:
    gold = [word_gold(one, visible) for one, (_, visible) in zip(sentences, seen, strict=True)]
    longest = max(len(one.words) for one in sentences)
    base = torch.arange(longest).expand(len(sentences), -1)
    done = Measured()
    for role in sorted({name for one in gold for name in one}):
        wanted = asked(_padded([one.get(role) for one in gold], longest), torch.ones_like(base, dtype=torch.bool))
        done.baselines[role] = (*gold_offsets(wanted, base).best(), len(wanted.row))
        dealt = shuffled(wanted, base, n_shuffles, generator) if n_shuffles else None
        sums = {}
        for number, (weights, visible) in enumerate(seen):
            rows = torch.ones(1, len(visible), dtype=torch.bool)
            parts = {"scores": score(weights[None], wanted.within(rows, number))}
            if dealt is not None:
                parts["shuffled"] = dealt.score(weights[None], visible[None], rows, number)
            for name, part in parts.items():
                sums[name] = sums[name] + part if name in sums else part
        for name, total in sums.items():
            values: dict[str, Average] = {MASS + role: total.mass, ACCURACY + role: total.accuracy}
            getattr(done, name).update({key: value.value for key, value in values.items()})
    return done


def _padded(gold: Sequence[Tensor | None], longest: int) -> Tensor:
    """(B,W,K) of sentences of different lengths."""
    width = max(one.size(1) for one in gold if one is not None)
    padded = torch.full((len(gold), longest, width), -1)
    for number, one in enumerate(gold):
        if one is not None:
            padded[number, : one.size(0), : one.size(1)] = one
    return padded
