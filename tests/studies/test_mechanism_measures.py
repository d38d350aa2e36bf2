"""Measures and probes of the studies of mechanisms, by hand and by other ways to compute the same."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from minitf.analysis.forward import evaluating
from minitf.config import check, compose
from minitf.data.synthetic.repeat_switch import RepeatSwitch
from minitf.data.synthetic.repeat_text import RepeatText
from minitf.errors import ConfigError
from minitf.studies.loop import prepare
from minitf.studies.measures import ablation, copying, in_text, longer, order
from minitf.studies.measures.sample import joined
from minitf.studies.probes import phase, softmax, static, untrained
from minitf.tap import Tap

DATA = ["data=repeat", "data.n_val=64"]
MODEL = ["task=answer", "model=gpt_tiny", "model.d_model=16", "model.attention.n_heads=2"]
TEXT = "data.task._target_=minitf.data.synthetic.repeat_text.RepeatText"


def subject(*overrides):
    overrides = [*DATA, *MODEL, "trainer.precision=32-true", *overrides]
    cfg = compose("train", overrides)
    check(cfg, "train", overrides)
    return prepare(cfg)


def test_a_repeated_text_asks_every_token_and_its_gold_is_what_can_be_known():
    rows = RepeatText(n_symbols=9, least=3, most=5).rows(np.random.default_rng(0), 20, 12)
    assert (rows["targets"][:, :-1] == rows["ids"][:, 1:]).all()
    for ids, targets, gold in zip(rows["ids"], rows["targets"], rows["gold.repeat"][:, :, 0], strict=True):
        period = int((ids == ids[1]).nonzero()[0][1]) - 1
        asked = np.flatnonzero(gold >= 0)
        assert asked.tolist() == list(range(period + 1, 12))  # not the place after the first round, where p is unknown
        assert (ids[gold[asked]] == targets[asked]).all()


def test_a_second_segment_begins_anywhere_and_its_gold_is_its_own():
    rows = RepeatSwitch(n_symbols=10, least=3, most=5).rows(np.random.default_rng(0), 300, 16)
    assert (rows["targets"][:, :-1] == rows["ids"][:, 1:]).all()
    begins = set()
    for ids, targets, gold in zip(rows["ids"], rows["targets"], rows["gold.repeat"][:, :, 0], strict=True):
        assert 6 <= len(set(ids[1:].tolist())) <= 10, "both segments, once at least"
        new = [t for t in range(1, 16) if ids[t] not in ids[1:t]]
        for t in range(16):
            earlier = [j for j in range(1, t) if ids[j] == ids[t]]
            known = bool(earlier) and t + 1 not in new  # not where the other segment begins
            if t + 1 < 16:
                assert (gold[t] >= 0) == known, (ids, t)
            if gold[t] >= 0:
                assert gold[t] == earlier[-1] + 1
                assert ids[gold[t]] == targets[t]
        begins |= {t for t in new if t - 1 not in new}  # those before which the first segment came twice
    assert min(begins - {1}) <= 6
    assert max(begins) >= 12
    with pytest.raises(ConfigError, match=r"n_symbols \(9\) must be at least twice most \(5\)"):
        RepeatSwitch(n_symbols=9, least=3, most=5)


@pytest.mark.parametrize("text", [[], [TEXT]], ids=["answers", "text"])
def test_the_first_two_rounds_are_found_row_by_row(text):
    batch = next(iter(subject(*text).data.val_batches()))
    first, second = ablation._first_rounds(batch)
    for ids, in_first, in_second in zip(batch["ids"], first, second, strict=True):
        period = int((ids == ids[1]).nonzero()[1]) - 1
        n = len(ids)
        # query t sees symbol t of the text, of round (t - 1) // period, and says the next one
        known = range(period + len(text), min(2 * period + len(text), n))
        assert in_second.nonzero().flatten().tolist() == list(known)
        assert in_first.nonzero().flatten().tolist() == (list(range(4, period + 1)) if text else [])


def test_rows_may_have_segments_of_other_lengths():
    one = subject("model.n_layers=2", TEXT)
    batch = ablation._rows_of(one, 3, 3, n=20)
    periods = [int((ids == ids[1]).nonzero()[1]) - 1 for ids in batch["ids"]]
    assert periods == [3] * 20
    assert batch["ids"].shape[1] == one.cfg.data.seq_len
    assert batch["targets"][:, 0].min() >= 0, "every token is scored, as in the data of training"
    usual, found = ablation.rows(one, n_batches=1), ablation.rows(one, segments=[3, 3])
    assert set(found) == {f"3-3 symbols.{name}" for name in usual}


class Oracle(nn.Module):
    """Knows the text, and says it with a loss of ln 2 per token."""

    def __init__(self, batches, n):
        super().__init__()
        self.known = {tuple(ids.tolist()): t for b in batches for ids, t in zip(b["ids"], b["targets"], strict=True)}
        self.n = n

    def forward(self, ids, pos=None):
        targets = torch.stack([self.known[tuple(row.tolist())] for row in ids])
        return nn.functional.one_hot(targets, self.n) * math.log(self.n - 1)


def test_heads_of_text_by_loops():
    sharp = ["model/init=gain", "model/init@model.init.base=unit_variance", "model.init.factor=3"]
    sizes = ["model.n_layers=2", "data.seq_len=16", "data.task.least=3", "data.task.most=5"]
    one = subject(*sizes, *sharp)
    found = in_text.heads(one, rows=8)
    ids = joined(one, 8)["ids"]

    def patterns(ids):
        points = [f"layers.{i}.attention.weights" for i in range(2)]
        with evaluating(one.model), torch.no_grad(), Tap(one.model, at=points) as tap:
            logits = one.model(ids)
        return [tap[point] for point in points], logits.log_softmax(-1)

    of_layers, _ = patterns(ids)
    rows = range(4, 16)
    by_head = [[float(a[:, h, i, i - 1].mean()) for i in rows] for a in of_layers for h in range(2)]
    assert found["previous_token"] == pytest.approx(max(sum(of) / len(of) for of in by_head), abs=1e-5)
    masses = [float(a[b, h, 4:, 0].mean()) for a in of_layers for b in range(8) for h in range(2)]
    assert found["sinks"] == pytest.approx(sum(m > 0.3 for m in masses) / len(masses))
    assert 0 < found["sinks"] < 1, "else it could be any number"
    twice = ids[:, :8].repeat(1, 2)
    again, said = patterns(twice)
    matches = [sum(float(a[:, h, i, i - 7].mean()) for i in range(8, 16)) / 8 for a in again for h in range(2)]
    assert found["prefix"] == pytest.approx(max(matches), abs=1e-5)
    nll = -said[:, :-1].gather(-1, twice[:, 1:, None])[..., 0]
    assert found["second_time"] == pytest.approx(float(nll[:, 8:].mean() - nll[:, :7].mean()), abs=1e-4)


def test_rounds_are_told_apart():
    one = subject(TEXT)
    one.model = Oracle(one.data.val_batches(), one.data.task.vocab_size)
    found = copying.rounds(one)
    assert found["copied"] == 1
    assert found["copied_nll"] == pytest.approx(math.log(2), abs=1e-5)
    assert found["in_context"] == pytest.approx(0, abs=1e-5)
    assert "first_nll" not in copying.rounds(subject())  # where only answers are scored


def test_a_second_segment_has_one_source_for_each_answer():
    ids, gold = longer.second_segment(n_symbols=12, start=9, n=5, period=4)
    assert ids.shape == (5, 17)
    assert (ids[:, 0] == 0).all()
    asked = (gold[0, :, 0] >= 0).nonzero().flatten().tolist()
    assert asked == [13, 14, 15]
    for row, places in zip(ids, gold[:, :, 0], strict=True):
        assert all(int(row[places[i]]) == int(row[i + 1]) for i in asked)
        assert all((row == row[i + 1]).sum() == 2 for i in asked)  # the source and the answer itself
    assert int(gold.max()) >= 9


def test_what_longer_rows_lose_is_counted_from_the_trained_length(monkeypatch):
    right = iter([0.9, 0.8, 0.7, 0.4])
    monkeypatch.setattr(longer, "answered", lambda *_: {longer.ROLE: type("One", (), {"accuracy": next(right)})})
    one = subject(TEXT)
    assert longer.lengths(one, of=[24, 48], n=4)["lost.at.48"] == pytest.approx(0.1)
    found = longer.beyond(one, begins=[13, 25], within=13, n=4, period=4)
    assert found["lost.begins.25"] == pytest.approx(0.3)
    assert "lost.begins.13" not in found


@pytest.mark.parametrize(
    ("overrides", "blind"),
    [
        (["data.task.form=tag", "task=tag", "model=bert_tiny", "model/head=tag", "model.n_layers=2"], True),
        (["model.n_layers=1"], True),
        (["model.n_layers=2"], False),
        (["model.n_layers=1", "model/position=rope"], False),
    ],
)
def test_the_last_token_sees_the_order_of_earlier_ones_only_with_a_code_or_two_causal_layers(overrides, blind):
    own = ["data=who_chases_whom", "model/init=unit_variance", "model.tie_embeddings=false"]
    positions = [] if any("position" in o for o in overrides) else ["model/position=none"]
    chosen = [*MODEL, *own, *overrides, *positions]
    change = order.swapped(prepare(compose("train", chosen)))["swap"]
    assert change < 1e-5 if blind else change > 1e-3


def test_tokens_of_uniform_attention_read_themselves_as_much_as_the_others():
    one = subject("model/init=zero_qk", "model.n_layers=1")
    assert order.own(one)["self"] == pytest.approx(np.mean([1 / n for n in range(5, 25)]), abs=1e-6)


@pytest.mark.parametrize("scaled", [True, False])
def test_the_gradient_of_a_query_is_that_of_autograd(scaled):
    found = softmax.at_start(0, n_keys=7, d_head=9, scaled=scaled, n_rows=50)
    draw = torch.Generator().manual_seed(0)
    q = torch.randn(50, 9, generator=draw).requires_grad_()
    k, upstream = torch.randn(50, 7, 9, generator=draw), torch.randn(50, 7, generator=draw)
    scores = (k @ q[:, :, None])[:, :, 0] / (3 if scaled else 1)
    (scores.softmax(-1) * upstream).sum().backward()
    norms = q.grad.norm(dim=-1)
    assert found["gradient_mean"] == pytest.approx(float(norms.mean()), rel=1e-4)
    assert found["gradient_median"] == pytest.approx(float(norms.median()), rel=1e-4)
    assert found["std"] == pytest.approx(float(scores.detach().std()), rel=1e-4)


def test_the_median_dies_without_the_scale_while_the_mean_grows():
    plain, scaled = (softmax.at_start(0, 16, 256, on, n_rows=300) for on in (False, True))
    assert plain["jacobian_median"] < 0.05 < 0.25 < scaled["jacobian_median"]
    assert plain["gradient_mean"] > 2 * scaled["gradient_mean"]


def test_weights_thin_out_unless_scores_grow_with_the_length():
    assert softmax.dilution(0, n_keys=1)["max_weight"] == 1
    assert max(softmax.dilution(0, n_keys=n)["beyond"] for n in (1, 8, 512)) < 1e-5
    assert softmax.dilution(0, n_keys=8, by_length=True) == softmax.dilution(0, n_keys=8)
    assert softmax.dilution(0, n_keys=4096)["max_weight"] < 0.02 < 0.2 < softmax.dilution(0, 4096, True)["max_weight"]


def test_a_lookup_finds_the_equal_key_only_where_keys_are_equally_long():
    assert softmax.lookup(0, temperature=1e9)["equal"] == pytest.approx(1 / 6)  # equal, longer and four others
    for seed in range(20):
        sharp = {cosine: softmax.lookup(seed, 1e-3, cosine=cosine) for cosine in (True, False)}
        assert sharp[True]["equal"] > 0.999 < sharp[False]["longer"]
        ratio = softmax.lookup(seed, 1.0)["longer"] / softmax.lookup(seed, 1.0)["equal"]
        assert 2 * math.cos(0.6) - 1 < math.log(ratio) < 4 * math.cos(0.3) - 1
        gone = softmax.lookup(seed, 1e-3, cosine=True, present=False)
        assert gone["longer"] > 0.999
        assert gone["sum"] == pytest.approx(1)
    assert softmax.lookup(0, 1.0) != softmax.lookup(1, 1.0)


def test_few_keys_bound_the_rank_and_values_bound_the_reach():
    assert [untrained.rank(0, 6, m)["rank"] for m in (2, 8)] == [2, 6]
    assert untrained.rank(0, 6, 1)["reach"] == pytest.approx(1)
    assert all(0 < untrained.rank(seed, 6, 8)["reach"] < 1 for seed in range(5))


def test_attention_bends_although_its_projections_do_not():
    bend = {part: untrained.linearity(0, part)["bend"] for part in ("projection", "given", "attention", "ffn")}
    assert max(bend["projection"], bend["given"]) < 1e-5 < 0.1 < min(bend["attention"], bend["ffn"])


def test_one_head_needs_no_query_matrix():
    assert untrained.merged(0, 1)["missed"] == 0
    # of four heads each keeps a quarter of the squares of its product
    assert untrained.merged(0, 4)["missed"] == pytest.approx(math.sqrt(3 / 4), abs=0.02)


def test_attention_upon_attention_makes_tokens_alike_and_a_residual_keeps_them_apart():
    alone, kept = (untrained.stacking(0, residual=r, n_layers=4, d_model=32) for r in (0.0, 1.0))
    assert alone["apart.1"] > alone["apart.2"] > 100 * alone["apart.4"]
    assert kept["apart.4"] > 0.5


def test_rules_of_initialisation_start_with_the_scores_that_they_say():
    small = {"d_model": 128, "n_heads": 2}
    found = {init: untrained.state(0, init, **small) for init in ("gpt2", "xavier", "zero_qk")}
    assert found["xavier"]["score_std"] == pytest.approx(1, abs=0.1)
    assert found["gpt2"]["entropy"] > 0.99 > 0.9 > found["xavier"]["entropy"]
    assert found["zero_qk"]["gradient_w_q"] == found["zero_qk"]["gradient_w_k"] == 0
    assert found["zero_qk"]["to_mean"] < 1e-5


def test_where_a_course_crosses():
    course = torch.tensor([0.2, 0.2, 0.3, 0.9, 1.0, 1.2])
    assert [phase.crossed(course, share) for share in (0.05, 0.5, 0.9)] == [2, 3, 5]


def test_best_keys_are_counted_by_head(monkeypatch):
    def chosen(q, k):  # three of the four queries of a head agree, in every second head all
        scores = torch.zeros(1, 4, 4, 8)
        scores[..., 2] = 1
        scores[:, ::2, 3, 5] = 2
        return scores

    monkeypatch.setattr(static, "build", lambda node: lambda **_: SimpleNamespace(double=lambda: chosen))
    assert static.best_keys(0, "dot", n_queries=4, n_parts=4) == {"same": 0.875, "kinds": 1.5}


def test_the_score_of_gat_has_the_same_best_key_for_all_queries():
    assert static.best_keys(0, "gat", n_parts=50) == {"same": 1.0, "kinds": 1.0}
    assert static.best_keys(0, "gatv2", n_parts=50)["kinds"] > 1.5
