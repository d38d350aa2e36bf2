"""Syntactic heads on real sentences with gold: a head that follows it is found, a random encoder's heads are not."""

from functools import partial

import gold_syntax
import parts
import pytest
import torch

from minitf.analysis.heads.sentences import sentence, word_shares
from minitf.analysis.heads.syntax import measure_syntax, syntax_reports
from minitf.config import build
from minitf.data.tokenizer import BPETokenizer, CharTokenizer
from minitf.tap import Tap


@pytest.fixture(scope="module")
def gold():
    return gold_syntax.gold()


def sentences(gold, language):
    separator = "" if language == "zh" else " "
    return [
        sentence(s.tokens, [-1 if h is None else h for h in s.heads], s.relations, separator) for s in gold[language]
    ]


def encoder(vocab_size, seed):
    torch.manual_seed(seed)
    typed = ["model.n_layers=1", "model.d_model=32", "model.attention.n_heads=2", "model.max_len=400"]
    return build(parts.node("bert_tiny", *typed, f"model.vocab_size={vocab_size}")).eval()


def follows(one, tokenizer):
    """Weights of head 0 whose tokens all look at the tokens of their word's head; the root's look at themselves."""
    shares = word_shares(one, tokenizer.encode(one.text), tokenizer)
    heads = [own if head < 0 else head for own, head in enumerate(one.heads)]
    asks = shares / shares.sum(1, keepdim=True).clamp_min(1e-9)
    reads = shares.T / shares.T.sum(1, keepdim=True)

    def edit(weights):
        weights = weights.clone()
        weights[:, 0] = 0
        weights[:, 0, 1:, 1:] = asks @ reads[heads]
        return weights

    return edit


# without spaces a token of several characters may belong to two words: Chinese is read character by character
@pytest.mark.parametrize(("language", "kind"), [("en", partial(BPETokenizer, vocab_size=600)), ("zh", CharTokenizer)])
def test_a_head_that_follows_the_gold_has_all_of_it(gold, language, kind):
    found = sentences(gold, language)
    tokenizer = kind().train([one.text for one in found])
    model = encoder(tokenizer.vocab_size, 0)
    for one in found[:8]:
        with Tap(model, edit={"layers.0.attention.weights": follows(one, tokenizer)}):
            (measured,) = measure_syntax(model, [one], tokenizer, bos=tokenizer.bos_id).values()
        assert measured.scores["accuracy:head of all"][0] == 1.0
        assert measured.scores["accuracy:head of all"][1] < 0.9


def test_the_best_fixed_offset_of_english_is_the_next_word(gold):
    found = sentences(gold, "en")
    tokenizer = BPETokenizer(vocab_size=600).train([one.text for one in found])
    model, others = encoder(tokenizer.vocab_size, 0), [encoder(tokenizer.vocab_size, seed) for seed in (1, 2)]
    reports = syntax_reports(model, found, tokenizer, others, bos=tokenizer.bos_id, n_shuffles=5)
    offset, share, n = reports[0].baselines["head of all"]
    assert (offset, n) == (-1, 858)
    assert share == pytest.approx(0.315, abs=0.0005)
    assert reports[0].baselines["head of det"][1] > share  # determiners stand before their noun
    assert not any(report.names for report in reports)
