"""Do heads follow the dependencies of sentences? Gold of words, attention of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from minitf.analysis.capture import MAX_BYTES, capture
from minitf.analysis.heads.battery import N_SHUFFLES, QUANTILE, HeadReport, reports
from minitf.analysis.heads.measure import ACCURACY, MASS, Measured
from minitf.analysis.heads.roles import asked, gold_offsets, score
from minitf.analysis.heads.sentences import Sentence, Tokenizer, word_attention, word_gold, word_shares
from minitf.analysis.heads.shuffled import shuffled
from minitf.analysis.sites import Site
from minitf.errors import DataError


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
    offset, in words, stands beside each. `syntax_reports` compares with null models.

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


def syntax_reports(
    model: nn.Module,
    sentences: Iterable[Sentence],
    tokenizer: Tokenizer,
    untrained: Iterable[nn.Module] = (),
    *,
    bos: int | None,
    n_shuffles: int = N_SHUFFLES,
    quantile: float = QUANTILE,
    seed: int = 0,
) -> list[HeadReport]:
    """A report for each head of self-attention, with names such as "head of nsubj", as `battery` gives them.

    Args:
        model, sentences, tokenizer, bos, n_shuffles, seed: as for `measure_syntax`.
        untrained, quantile: as for `battery.battery`.

    Raises:
        DataError: as for `measure_syntax`.
    """
    sentences = list(sentences)
    own = measure_syntax(model, sentences, tokenizer, bos=bos, n_shuffles=n_shuffles, seed=seed)
    nulls = [measure_syntax(other, sentences, tokenizer, bos=bos) for other in untrained]
    return [
        report for site, found in own.items() for report in reports(site, found, [n[site] for n in nulls], quantile)
    ]


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
        yield found.site, weights.masked_fill(own, 0.0), visible


def _relations(
    sentences: Sequence[Sentence], seen: Sequence[tuple[Tensor, Tensor]], n_shuffles: int, generator: torch.Generator
) -> Measured:
    found = [word_gold(one, visible) for one, (_, visible) in zip(sentences, seen, strict=True)]
    longest = max(len(one.words) for one in sentences)
    weights = torch.stack([_padded(one, (len(one), longest, longest), 0.0) for one, _ in seen])  # (B,H,W,W)
    visible = torch.stack([_padded(one, (longest, longest), False) for _, one in seen])
    rows = torch.ones(visible.shape[:2], dtype=torch.bool)
    base = torch.arange(longest).expand(rows.shape)
    done = Measured()
    for role in sorted({name for one in found for name in one}):
        width = max(one[role].size(1) for one in found if role in one)
        nothing = torch.full((1, 1), -1)
        gold = torch.stack([_padded(one.get(role, nothing), (longest, width), -1) for one in found])
        wanted = asked(gold, rows)
        done.baselines[role] = (*gold_offsets(wanted, base).best(), len(wanted.row))
        results = [(done.scores, score(weights, wanted))]
        if n_shuffles:
            results.append((done.shuffled, shuffled(wanted, base, n_shuffles, generator).score(weights, visible, rows)))
        for into, result in results:
            into |= {MASS + role: result.mass.value, ACCURACY + role: result.accuracy.value}
    return done


def _padded(value: Tensor, shape: tuple[int, ...], filling: float) -> Tensor:
    """A tensor in the first corner of a larger one."""
    padded = value.new_full(shape, filling)
    padded[tuple(slice(n) for n in value.shape)] = value
    return padded
