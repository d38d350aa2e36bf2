"""demo=doctor: a fast path that is not the definition is found, and what it hides is named."""

import pytest
import torch
from examined import broken, diagnosis, made, seen, words_of
from parts import some_by_default

from minitf.blocks.attend.sdpa import attend_sdpa
from minitf.blocks.mask.causal import Causal
from minitf.blocks.mask.full import Full
from minitf.blocks.normalize.sigmoid import Sigmoid
from minitf.blocks.score.scaled_dot import ScaledDot
from minitf.demo.doctor.examine import examine
from minitf.demo.doctor.laws import BROKEN, FUTURE, HOLDS, NOT_ASKED, PADDING, PATHS, state
from minitf.demo.doctor.mistakes import named

TRIANGLE = lambda self, q_off, k_off: k_off >= q_off  # noqa: E731
ONE_TOO_MANY = lambda self, q_off, k_off: k_off <= q_off + 1  # noqa: E731


def told(model):
    """What all mistakes of a model look like."""
    return [mistake.told for mistake in named(examine(model, words_of(model)))]


CAUSAL = [
    ("gpt_tiny", "model/attention=mha"),
    ("gpt_tiny", "model/attention=mla"),
    ("llama_tiny", "model/attention=gqa"),
    ("encdec_tiny", "model/attention=mha"),
    ("gpt_tiny", "model/attention/fast=band"),
]


@pytest.mark.parametrize(("preset", "part"), some_by_default(CAUSAL, 3))
@pytest.mark.parametrize(("rule", "name"), [(TRIANGLE, "mask_inverted"), (ONE_TOO_MANY, "")])
def test_a_mask_that_is_not_what_it_claims_is_found(monkeypatch, rule, name, preset, part):
    monkeypatch.setattr(Causal, "rule", rule)
    model = made(preset, part)
    all_laws, mistakes = diagnosis(model)
    assert state(all_laws, PATHS) == state(all_laws, FUTURE) == BROKEN
    assert seen(all_laws, FUTURE).startswith("definition: ")
    assert mistakes == ["", name]
    claim, other = told(model)
    assert "`plain_causal`, which the fast path takes at its word: there a query reads itself and what" in claim
    assert "Seen by definition alone" in other


def test_where_the_fast_path_asks_the_rule_there_is_only_the_mistake_itself(monkeypatch):
    monkeypatch.setattr(Causal, "rule", TRIANGLE)
    all_laws, mistakes = diagnosis(made("gpt_tiny", "model/position=alibi"))  # what places add leaves no other way
    assert state(all_laws, PATHS) == HOLDS
    assert mistakes == ["mask_inverted"]


def test_without_a_fast_path_there_is_only_the_mistake_itself(monkeypatch):
    monkeypatch.setattr(Causal, "rule", TRIANGLE)
    all_laws, mistakes = diagnosis(made("gpt_tiny", "model.attention.fast=null"))
    assert state(all_laws, PATHS) == NOT_ASKED
    assert mistakes == ["mask_inverted"]


def test_a_mask_that_claims_to_show_all_is_found(monkeypatch):
    monkeypatch.setattr(Full, "rule", lambda self, q_off, k_off: k_off <= q_off)
    (claim,) = told(made("bert_tiny"))
    assert "`plain_full`, which the fast path takes at its word: there a query reads every key" in claim


def test_a_score_with_another_dot_form_is_found(monkeypatch):
    monkeypatch.setattr(ScaledDot, "dot_form", lambda self, q, k: (q, k, 0.3))
    all_laws, mistakes = diagnosis(made())
    assert [law.name for law in broken(all_laws)] == [PATHS]
    assert mistakes == [""]
    assert "`dot_form`" in told(made())[0]


def test_a_normaliser_that_claims_to_be_the_softmax_is_found(monkeypatch):
    monkeypatch.setattr(Sigmoid, "is_softmax", True)
    assert "is_softmax" in told(made("gpt_tiny", "model/attention/normalize=sigmoid"))[0]


def test_a_window_that_claims_to_be_narrower_is_found_in_long_rows():
    model = made("mistral_tiny", "model/attention/fast=band", "model.mask.window=64")
    for layer in model.layers:
        layer.attention.mask.reach = (20, 0)
    all_laws, _ = diagnosis(model)
    assert [law.name for law in broken(all_laws)] == [PATHS]
    assert seen(all_laws, PATHS).startswith("long rows")
    assert "`reach`" in told(model)[0]


def test_a_fast_path_that_does_not_ask_about_padding_is_found():
    model = made()
    for layer in model.layers:
        layer.attention.fast = lambda *given, plain, **more: attend_sdpa(*given, plain=True, **more)
    all_laws, _ = diagnosis(model)
    assert {PATHS, PADDING} <= {law.name for law in broken(all_laws)}
    assert seen(all_laws, PADDING).startswith("fast path: ")
    assert "does not ask the mask where rows are padded or packed" in told(model)[0]


def test_weights_that_are_others_each_time_are_not_compared():
    model = made()
    for layer in model.layers:
        layer.attention.fast = lambda *given, dropout, **more: attend_sdpa(*given, dropout=0.5, **more)
    all_laws, mistakes = diagnosis(model)
    assert state(all_laws, PATHS) == NOT_ASKED
    assert mistakes == ["dropout_always"]


def test_the_model_is_as_it_was(monkeypatch):
    monkeypatch.setattr(Causal, "rule", TRIANGLE)
    model = made()
    ids = torch.arange(6)[None]
    before = model(ids)
    diagnosis(model)
    assert model(ids).equal(before)
    assert all(getattr(module, "tap", None) is None for module in model.modules())
