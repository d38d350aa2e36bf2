import importlib.util
import itertools
from functools import cache
from pathlib import Path

import parts
import pytest
import torch
from torch import nn

from minitf.cache.dynamic import Dynamic
from minitf.errors import ConfigError
from minitf.generation import beam
from minitf.generation.beam import beam_search
from minitf.generation.generate import generate
from minitf.generation.rules import MinLength, NoRepeatNgram, RepetitionPenalty
from minitf.generation.sampling import Greedy

CACHES = ["dynamic", "static"]  # those that every model here can have, and that round nothing
PENALTIES = [-1.0, 0.0, 0.5, 1.0, 2.0]


class Markov(nn.Module):
    """A model without weights: log-probabilities (n,V,V) of the next token, given how many there are and the last one.

    Were they the same at each place, the same steps in another order would tie.
    """

    position_limit = None

    def __init__(self, logits):
        super().__init__()
        self.logprobs, self.calls = logits.log_softmax(-1), 0

    def step(self, ids, pos=None, caches=None):
        self.calls += 1
        return self.logprobs[ids.size(1) - 1, ids[:, -1]]


def enumerated(model, first, stop, n, penalty):
    """All texts from token `first`, best first: (score, ids)."""
    found = []
    size = model.logprobs.size(-1)
    for length in range(1, n + 1):
        for ids in itertools.product(range(size), repeat=length):
            if any(i in stop for i in ids[:-1]) or (length < n and ids[-1] not in stop):
                continue
            path = torch.tensor([first, *ids])
            found.append(
                (model.logprobs[torch.arange(length), path[:-1], path[1:]].sum().item() / length**penalty, list(ids))
            )
    return sorted(found, reverse=True)


def same(got, expected, bound=1e-5):
    """The same hypotheses, with scores to `bound`."""
    assert [[h.ids for h in row] for row in got] == [[h.ids for h in row] for row in expected]
    assert [[h.finished for h in row] for row in got] == [[h.finished for h in row] for row in expected]
    for ours, theirs in zip(itertools.chain(*got), itertools.chain(*expected), strict=True):
        assert ours.score == pytest.approx(theirs.score, abs=bound)
        assert ours.logprobs == pytest.approx(theirs.logprobs, abs=bound)


def ordered(row, penalty):
    """Scores are those of the log-probabilities, best first, each text once."""
    assert [h.score for h in row] == sorted((h.score for h in row), reverse=True)
    assert len({tuple(h.ids) for h in row}) == len(row)
    for h in row:
        assert len(h.logprobs) == len(h.ids)
        assert sum(h.logprobs) == pytest.approx(h.score * len(h.ids) ** penalty, rel=1e-9)


# --- what is found ---


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("stop", [[3], [0, 3], []])
def test_a_wide_beam_finds_the_best_of_all_texts(penalty, stop):
    for seed in range(3):
        torch.manual_seed(seed)
        model = Markov(2 * torch.randn(4, 4, 4).double())
        got = beam_search(
            model,
            torch.tensor([[1], [2]]),
            n_beams=256,
            n_best=5,
            length_penalty=penalty,
            max_new_tokens=4,
            stop=stop,
        )
        for first, row in zip((1, 2), got, strict=True):
            best = enumerated(model, first, stop, 4, penalty)[:5]
            assert [h.ids for h in row] == [ids for _, ids in best]
            assert [h.score for h in row] == pytest.approx([score for score, _ in best])
            assert [h.finished for h in row] == [h.ids[-1] in stop for h in row]
            ordered(row, penalty)


def test_two_beams_see_what_one_does_not():
    # 1 is likelier at first, but what follows it is not; 2 leads to certainty
    steps = torch.tensor([[0.0, 0.55, 0.45, 0.0], [0.3, 0.3, 0.2, 0.2], [0.0, 0.0, 0.0, 1.0], [0.25] * 4])
    model = Markov(steps.log().expand(2, 4, 4))
    how = {"max_new_tokens": 2, "stop": [3], "length_penalty": 0.0}
    one, two = (beam_search(model, torch.tensor([[0]]), n_beams=n, **how)[0][0] for n in (1, 2))
    assert (one.ids[0], two.ids) == (1, [2, 3])
    assert two.score > one.score


@pytest.mark.parametrize("penalty", [*PENALTIES, -0.3])
def test_ending_early_loses_nothing(penalty, monkeypatch):
    how = {"n_beams": 4, "n_best": 2, "max_new_tokens": 12, "stop": [0], "length_penalty": penalty}
    models, early = [], []
    for seed in range(40):
        torch.manual_seed(seed)
        models.append(Markov(2 * torch.randn(12, 6, 6).double()))
        early.append(beam_search(models[-1], torch.tensor([[1]]), **how))
    calls = sum(model.calls for model in models)
    monkeypatch.setattr(beam._Search, "_can_do_better", lambda self, b: len(b.ids) < self.max_new_tokens)
    for model, found in zip(models, early, strict=True):
        model.calls = 0
        same(beam_search(model, torch.tensor([[1]]), **how), found, 1e-12)
        assert model.calls == 12
    if penalty < 2:  # then a long text is worth so much that it has to be written
        assert calls < 40 * 12


def test_a_row_ends_when_what_is_kept_cannot_be_beaten():
    model = Markov(torch.tensor([0.5, 0.3, 0.2]).log().expand(50, 3, 3))  # token 0 stops
    how = {"n_beams": 2, "stop": [0], "max_new_tokens": 50}
    for penalty, calls in (
        (0.0, 1),
        (-1.0, 1),
        (1.0, 29),
    ):  # 29 steps of 0.3, and then 21 that are sure, do not beat 0.5
        model.calls = 0
        found = beam_search(model, torch.tensor([[1]]), length_penalty=penalty, **how)[0]
        assert (found[0].ids, model.calls) == ([0], calls)


def test_what_ends_a_token_later_can_beat_what_is_kept_under_a_negative_penalty():
    # 0 stops: after one token with 0.2, after two with 0.8 times 1; at the longest, 50 tokens, it could not
    steps = torch.zeros(50, 2, 2)
    steps[0], steps[1:] = torch.tensor([0.2, 0.8]), torch.tensor([1.0, 0.0])
    how = {"n_beams": 2, "max_new_tokens": 50, "stop": [0], "length_penalty": -1.0}
    assert beam_search(Markov(steps.log()), torch.tensor([[1]]), **how)[0][0].ids == [1, 0]


def test_beams_that_end_leave_their_places_to_others():
    # the three likeliest tokens stop; of the two others the less likely one leads on
    steps = torch.zeros(2, 5, 5)
    steps[0] = torch.tensor([0.3, 0.25, 0.2, 0.15, 0.1])
    steps[1], steps[1, 4] = 0.2, torch.tensor([1.0, 0, 0, 0, 0])
    how = {"n_beams": 2, "max_new_tokens": 2, "stop": [0, 1, 2], "length_penalty": 2.0}
    assert beam_search(Markov(steps.log()), torch.tensor([[3]]), **how)[0][0].ids == [4, 0]


def test_fewer_texts_than_asked_for():
    model = Markov(torch.zeros(2, 2, 2))
    found = beam_search(model, torch.tensor([[1]]), n_beams=8, n_best=8, max_new_tokens=2, stop=[0])[0]
    assert sorted(h.ids for h in found) == [[0], [1, 0], [1, 1]]


# --- the same as elsewhere ---


def decoder(*overrides):
    return parts.model("gpt_tiny", "model.tie_embeddings=false", *overrides, scale=4)


@pytest.mark.parametrize("penalty", [-1.0, 0.0, 1.5])
def test_one_beam_is_greedy(penalty):
    model, pos = decoder("model/position=rope"), parts.padded([6, 2, 4], "left")
    ids = torch.randint(65, (3, 6))
    free = torch.stack([s.ids for s in generate(model, ids, pos=pos, sampler=Greedy(), max_new_tokens=14)], 1)
    stop = [free[0, 4].item(), free[2, 9].item()]
    rule_sets = [(), (RepetitionPenalty(1.4), NoRepeatNgram(2), MinLength(6, stop))]
    for rules in rule_sets:
        how = {"max_new_tokens": 14, "stop": stop, "rules": rules}
        steps = list(generate(model, ids, pos=pos, sampler=Greedy(), **how))
        found = beam_search(
            model, ids, pos=pos, n_beams=1, length_penalty=penalty, caches=model.new_caches(Dynamic), **how
        )
        for row, (only,) in enumerate(found):
            n = sum(not s.finished[row] for s in steps) + only.finished
            assert only.ids == [s.ids[row].item() for s in steps][:n]
            assert only.finished == bool(steps[-1].finished[row])
            assert only.logprobs == pytest.approx([s.logprobs[row].item() for s in steps][:n], abs=1e-4)
            ordered([only], penalty)


@cache
def twins(name):
    """A model and transformers' own with the same weights, as the parity tests make them."""
    spec = importlib.util.spec_from_file_location("parity", Path(__file__).parents[1] / "models" / "test_parity.py")
    parity = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(parity)
    return getattr(parity, name)()


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("penalty", [-1.0, 0.0, 1.0, 2.0])
def test_hypotheses_are_those_of_transformers(name, penalty):
    ours, theirs = twins(name)
    ids = torch.randint(2, 65, (3, 5))
    n_ended, stop = 0, []
    for n_beams, ngram in ((4, 0), (2, 0), (4, 2), (3, 0)):
        expected = theirs.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            num_beams=n_beams,
            num_return_sequences=2,
            length_penalty=penalty,
            max_new_tokens=12,
            early_stopping="never",
            eos_token_id=stop or 64 + 1000,
            pad_token_id=1,
            no_repeat_ngram_size=ngram,
            do_sample=False,
            return_dict_in_generate=True,
            output_scores=True,
        )
        got = beam_search(
            ours,
            ids,
            n_beams=n_beams,
            n_best=2,
            length_penalty=penalty,
            max_new_tokens=12,
            stop=stop,
            rules=[NoRepeatNgram(ngram)] if ngram else [],
            caches=ours.new_caches(Dynamic),
        )
        rows = [h for row in got for h in row]
        for h, sequence in zip(rows, expected.sequences[:, 5:].tolist(), strict=True):
            assert h.ids == sequence[: len(h.ids)]
            assert set(sequence[len(h.ids) :]) <= {1}
        assert [h.score for h in rows] == pytest.approx(expected.sequences_scores.tolist(), abs=1e-4)
        n_ended += sum(h.finished for h in rows)
        stop = stop or sorted({h.ids[5] for h in rows})  # from now on some texts end
    assert n_ended > (3 if penalty <= 0 else 0)


class Watched(Dynamic):
    """Counts how often rows were taken in an order that is not their own."""

    moved = 0

    def select(self, rows):
        if self._entries and rows.tolist() != list(range(rows.numel())):
            Watched.moved += len(rows) == self._entries[0].size(0)
        super().select(rows)


SEARCH = {"n_beams": 3, "n_best": 3, "max_new_tokens": 10, "stop": [5, 11, 17]}


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("overrides", [("model/position=rope",), ("model/position=learned", "model.max_len=8")])
def test_any_cache_gives_the_hypotheses_of_the_plain_search(cache, overrides):
    model = decoder(*overrides)
    ids, pos = torch.randint(65, (3, 7)), parts.padded([7, 3, 5], "left")
    expected = beam_search(model, ids, pos=pos, **SEARCH)
    for chunk in (None, 2):
        caches = model.new_caches(parts.caches(cache))
        same(beam_search(model, ids, pos=pos, caches=caches, prefill_chunk=chunk, **SEARCH), expected)
    for row, n in enumerate([7, 3, 5]):
        same(beam_search(model, ids[row : row + 1, 7 - n :], **SEARCH), [expected[row]])
    for h in itertools.chain(*expected):
        ordered([h], 1.0)


def test_the_best_beam_changes_its_parent_in_these_tests():
    Watched.moved = 0
    model = decoder("model/position=rope")
    ids = torch.randint(65, (2, 5))
    same(beam_search(model, ids, caches=model.new_caches(Watched), **SEARCH), beam_search(model, ids, **SEARCH))
    assert Watched.moved > 4


@pytest.mark.parametrize("preset", ["encdec_tiny", pytest.param("t5_tiny", marks=pytest.mark.slow), "luong"])
def test_a_source_has_its_hypotheses_whatever_its_neighbours(preset):
    recurrent = preset == "luong"
    model = parts.model(preset, "model.tie_embeddings=false", scale=3 if recurrent else 6)
    lengths = [3, 9, 5, 7, 4]
    src, ids = torch.randint(65, (5, 9)), torch.zeros(5, 1).long()
    alone = {}
    for n_beams in (1, 2, 4):
        how = {**SEARCH, "n_beams": n_beams, "n_best": n_beams, "length_penalty": 0.6}
        for row, n in enumerate(lengths):
            memory = model.encode(src[row : row + 1, :n])
            alone[row] = beam_search(model, ids[:1], memory=memory, **how)[0]
        assert len({tuple(alone[row][0].ids) for row in alone}) > 2
        for order, kind in (
            ([0, 1, 2, 3, 4], None),
            ([3, 0, 4, 1, 2], None),
            *(([2, 4, 0, 1, 3], kind) for kind in CACHES),
        ):
            if recurrent and kind is not None:
                continue
            src_pos = parts.padded([lengths[i] for i in order], "right")
            memory = model.encode(src[order], src_pos)
            caches = None if kind is None else model.new_caches(parts.caches(kind))
            got = beam_search(model, ids, memory=memory, memory_pos=src_pos, caches=caches, **how)
            same(got, [alone[i] for i in order])


def test_rules_read_the_history_of_each_beam():
    model = decoder("model/position=rope")
    ids, pos = torch.randint(65, (2, 6)), parts.padded([6, 3], "left")
    how = {**SEARCH, "max_new_tokens": 14, "rules": [NoRepeatNgram(2), MinLength(6, SEARCH["stop"])]}
    plain = beam_search(model, ids, pos=pos, **{**how, "rules": ()})
    found = beam_search(model, ids, pos=pos, caches=model.new_caches(Dynamic), **how)
    same(found, beam_search(model, ids, pos=pos, **how))
    assert [[h.ids for h in row] for row in found] != [[h.ids for h in row] for row in plain]
    for row, prompt in zip(found, (ids[0].tolist(), ids[1, 3:].tolist()), strict=True):
        same(beam_search(model, torch.tensor([prompt]), **how), [row])
        ordered(row, 1.0)
        for h in row:
            text = [*prompt, *h.ids]
            new = list(zip(text[len(prompt) - 1 :], text[len(prompt) :], strict=False))
            assert len(set(new)) == len(new)
            assert not set(new) & set(itertools.pairwise(prompt))
            assert len(h.ids) > 6
            logprobs = model(torch.tensor([text])).log_softmax(-1)[0, len(prompt) - 1 : -1]
            own = logprobs.gather(-1, torch.tensor(h.ids)[:, None])[:, 0].tolist()
            assert h.logprobs == pytest.approx(own, abs=1e-4)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"n_beams": 0}, "n_beams must be a whole number"),
        ({"n_best": 4}, "3 beams cannot give 4 hypotheses"),
        ({"n_best": 0}, "n_best must be a whole number"),
        ({"max_new_tokens": 0}, "max_new_tokens must be a whole number"),
        ({"length_penalty": float("nan")}, "length_penalty must lie between -10 and 10"),
        ({"length_penalty": -400.0}, "length_penalty must lie between -10 and 10, got -400"),
        (
            {"n_beams": 10**30},
            r"beams take [\d,]+ bytes at the first step, this machine has [\d,]+ in all: search with fewer",
        ),
        ({"pad_id": -1}, "pad_id"),
        ({"ids": torch.zeros(1, 0).long()}, "prompt is empty"),
        ({"prefill_chunk": 0}, "prefill_chunk"),
    ],
)
def test_what_cannot_be_searched_is_refused(how, message):
    how = {"ids": torch.zeros(1, 2).long(), "n_beams": 3, "max_new_tokens": 4, **how}
    with pytest.raises(ConfigError, match=message):
        beam_search(Markov(torch.zeros(4, 3, 3)), how.pop("ids"), **how)


def test_used_caches_are_refused():
    model, ids = decoder("model/position=rope"), torch.randint(65, (1, 4))
    caches = model.new_caches(Dynamic)
    model.step(ids, None, caches)
    with pytest.raises(ConfigError, match="hold 4 tokens already"):
        beam_search(model, ids, n_beams=2, max_new_tokens=3, caches=caches)
