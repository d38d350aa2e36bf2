import parts
import pytest
import torch
from transformers import (
    MinNewTokensLengthLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
)

from minitf.cache.dynamic import Dynamic
from minitf.errors import ConfigError
from minitf.generation.generate import generate
from minitf.generation.rules import History, MinLength, NoRepeatNgram, RepetitionPenalty, apply_rules
from minitf.generation.sampling import Greedy

RULES = [RepetitionPenalty(1.7), RepetitionPenalty(0.6), NoRepeatNgram(1), NoRepeatNgram(2), NoRepeatNgram(3)]
RULES += [MinLength(4, [2, 5])]


def history(ids, prompts=None):
    lengths = [ids.size(1)] * ids.size(0)
    return History(ids, lengths, prompts or lengths)


def name(rule):
    return type(rule).__name__ + str(getattr(rule, "penalty", getattr(rule, "n", "")))


def test_a_penalty_counts_an_id_once_and_never_makes_it_likelier():
    logits, seen = torch.tensor([[3.0, -2.0, 1.0]]), torch.tensor([[0, 1, 1, 1]])
    assert RepetitionPenalty(1.5)(logits, history(seen)).tolist() == [[2.0, -3.0, 1.0]]
    assert torch.equal(RepetitionPenalty(1.0)(logits, history(seen)), logits)


@pytest.mark.parametrize("length", [1, 2, 3, 12])
def test_rules_are_those_of_transformers(length):
    ids, logits = torch.randint(8, (6, length)), torch.randn(6, 8)
    pairs = [(RepetitionPenalty(p), RepetitionPenaltyLogitsProcessor(p)) for p in (1.7, 0.6)]
    pairs += [(NoRepeatNgram(n), NoRepeatNGramLogitsProcessor(n)) for n in (1, 2, 3)]
    for prompt in {1, max(1, length - 3), max(1, length - 4), length}:
        theirs = MinNewTokensLengthLogitsProcessor(prompt, 4, [2, 5])
        got = MinLength(4, [2, 5])(logits, history(ids, [prompt] * 6))
        torch.testing.assert_close(got, theirs(ids, logits.clone()))
    for ours, theirs in pairs:
        torch.testing.assert_close(ours(logits, history(ids)), theirs(ids, logits.clone()))


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_a_row_does_not_depend_on_its_neighbours_or_padding(rule):
    lengths, prompts = [7, 2, 5, 1], [7, 1, 2, 1]
    ids, logits = torch.randint(2, (4, 7)), torch.randn(4, 9)
    together = rule(logits, History(ids, lengths, prompts))
    assert not torch.equal(together, logits)
    for row, (length, prompt) in enumerate(zip(lengths, prompts, strict=True)):
        alone = rule(logits[[row]], History(ids[[row], 7 - length :], [length], [prompt]))
        assert torch.equal(alone[0], together[row])


def test_ids_that_the_model_cannot_write_are_no_hindrance():
    ids, logits = torch.tensor([[90, 1, 90, 1]]), torch.zeros(1, 4)
    assert NoRepeatNgram(2)(logits, history(ids)).tolist() == logits.tolist()
    assert RepetitionPenalty(2.0)(logits + 1, history(ids)).tolist() == [[1.0, 0.5, 1.0, 1.0]]
    assert MinLength(9, [70])(logits, history(ids)).tolist() == logits.tolist()
    assert MinLength(9, [])(logits, history(ids)).tolist() == logits.tolist()


def test_rules_that_leave_nothing_are_passed_over_in_that_row_alone():
    logits, ids = torch.randn(2, 3), torch.tensor([[0, 1, 2], [0, 0, 1]])
    got = apply_rules([NoRepeatNgram(1)], logits, history(ids))
    assert torch.equal(got[0], logits[0])
    assert got[1].isfinite().tolist() == [False, False, True]


def test_a_text_keeps_to_its_rules_and_log_probabilities_stay_the_models():
    model = parts.model("gpt_tiny", "model/position=rope", "model.tie_embeddings=false", scale=8)
    lengths = [6, 3, 1]
    ids, pos = torch.randint(65, (3, 6)), parts.padded(lengths, "left")
    free = torch.stack([s.ids for s in generate(model, ids, pos=pos, sampler=Greedy(), max_new_tokens=24)], 1)
    stop = free[0, 2].item()
    rules = [RepetitionPenalty(1.3), NoRepeatNgram(2), MinLength(7, [stop])]
    how = {"sampler": Greedy(), "max_new_tokens": 24, "rules": rules}
    steps = list(generate(model, ids, pos=pos, **how))
    text = torch.stack([s.ids for s in steps], 1)
    assert not torch.equal(text, free)
    assert not (text[:, :7] == stop).any()
    cached = [s.ids for s in generate(model, ids, pos=pos, caches=model.new_caches(Dynamic), prefill_chunk=4, **how)]
    assert torch.equal(torch.stack(cached, 1), text)
    for row, n in enumerate(lengths):
        own = ids[row : row + 1, 6 - n :]
        assert torch.equal(torch.stack([s.ids for s in generate(model, own, **how)], 1)[0], text[row])
        whole = torch.cat([own[0], text[row]])
        couples = [tuple(couple) for couple in whole[n - 1 :].unfold(0, 2, 1).tolist()]
        assert len(set(couples)) == len(couples)
        logprobs = model(whole[None]).log_softmax(-1)[0, n - 1 : -1].gather(-1, whole[n:, None])[:, 0]
        torch.testing.assert_close(torch.stack([s.logprobs[row] for s in steps]), logprobs, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("make", "message"),
    [(lambda p=p: RepetitionPenalty(p), "repetition_penalty") for p in (0, -1.0, 1e-38, float("nan"), float("inf"))]
    + [(lambda n=n: NoRepeatNgram(n), "no_repeat_ngram") for n in (0, -1, 2.0, True)]
    + [(lambda n=n: MinLength(n, [1]), "min_new_tokens") for n in (-1, 2.0, True)],
)
def test_values_without_meaning_are_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
