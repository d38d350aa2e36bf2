"""demo=doctor: healthy models are called healthy, and every mistake of the lab is named."""

import pytest
import torch
from examined import broken, diagnosis, made, seen, words_of
from omegaconf import OmegaConf
from parts import node, options, some_by_default

from minitf.blocks.mask import Mask
from minitf.config import build, config_dir, group_options
from minitf.demo.doctor.examine import examine
from minitf.demo.doctor.laws import (
    ALONE,
    COLUMNS,
    DESIGN,
    DROPOUT,
    FUTURE,
    HOLDS,
    ITSELF,
    NOT_ASKED,
    ORDER,
    PATHS,
    ROWS,
    SCALE,
    state,
)
from minitf.errors import ConfigError
from minitf.lab.wrong_axis import WrongAxis

BUGS = group_options("bug")
SCORES = [f"model/attention/score={name}" for name in options("model/attention/score") if name != "dot"]
PARTS = [
    *(
        f"model/{group}={name}"
        for group in ("position", "layer", "ffn", "norm", "init")
        for name in options(f"model/{group}")
    ),
    *(f"model/mask={name}" for name in options("model/mask")),
    *(
        f"model/attention/{group}={name}"
        for group in ("projection", "qk_norm", "fast")
        for name in options(f"model/attention/{group}")
    ),
    *SCORES,
    *(f"model/attention={name}" for name in options("model/attention")),
]


@pytest.mark.parametrize(
    ("steps", "preset"), some_by_default([(steps, preset) for preset in options("model") for steps in (5, 0)], 4)
)
def test_every_model_is_healthy(preset, steps):
    all_laws, mistakes = diagnosis(made(preset, steps=steps))
    assert not broken(all_laws)
    assert not mistakes
    if preset in ("bahdanau", "luong"):
        assert {state(all_laws, law) for law in (ROWS, COLUMNS, ALONE, ORDER)} == {HOLDS}
        assert {state(all_laws, law) for law in (PATHS, SCALE, DROPOUT, ITSELF)} == {NOT_ASKED}
    elif preset != "gru_none":
        assert {state(all_laws, law) for law in (PATHS, ITSELF)} == {HOLDS}
        assert state(all_laws, ROWS) == HOLDS
        assert state(all_laws, SCALE) == (DESIGN if preset == "t5_tiny" else HOLDS)


@pytest.mark.parametrize("part", some_by_default(PARTS, 16))
def test_every_part_is_healthy_unless_its_mask_shows_the_future(part):
    model = made("gpt_tiny", part)
    all_laws, mistakes = diagnosis(model)
    has_fast_path = any(getattr(module, "fast", None) for module in model.modules())
    assert state(all_laws, PATHS) == (HOLDS if has_fast_path else NOT_ASKED)
    if model.sees_future:
        assert [law.name for law in broken(all_laws)] == [FUTURE]
        assert mistakes == [""]
    else:
        assert not broken(all_laws)


def test_an_own_token_that_is_not_read_is_told():
    all_laws, mistakes = diagnosis(made("gpt_tiny", "model/mask=causal_closed_diagonal"))
    assert state(all_laws, ITSELF) == DESIGN
    assert "11 of 12 tokens do not, in 2 of 2 modules" in seen(all_laws, ITSELF)
    assert not mistakes
    model = made()
    for layer in model.layers:
        layer.attention.mask = Strictly()
    all_laws, mistakes = diagnosis(model)
    assert state(all_laws, ITSELF) == DESIGN
    assert "12 of 12 tokens do not, in 2 of 2 modules; 1 of them reads nothing" in seen(all_laws, ITSELF)
    assert not broken(all_laws)
    assert not mistakes


class Strictly(Mask):
    """Only what comes before."""

    reach = (None, -1)

    def rule(self, q_off, k_off):
        return k_off < q_off


@pytest.mark.parametrize("preset", ["luong", "bahdanau"])
def test_a_softmax_over_the_queries_of_a_recurrent_model_is_named(preset):
    model = made(preset)
    model.attention.normalize = WrongAxis(n_heads=1)
    assert diagnosis(model)[1] == ["wrong_axis"]


@pytest.mark.parametrize("name", options("model/attention/normalize"))
def test_what_is_no_distribution_is_no_accusation(name):
    all_laws, mistakes = diagnosis(made("gpt_tiny", f"model/attention/normalize={name}"))
    assert not broken(all_laws)
    assert not mistakes
    assert state(all_laws, ROWS) == (DESIGN if name in ("off_by_one", "sigmoid", "sink") else HOLDS)


@pytest.mark.parametrize(("bug", "seed"), some_by_default([(bug, seed) for bug in BUGS for seed in (0, 1, 2)], 3))
@pytest.mark.parametrize("steps", some_by_default([0, 5], 2))
def test_every_mistake_is_named(bug, seed, steps):
    _, mistakes = diagnosis(made("gpt_tiny", "model/init=unit_variance", bug=bug, seed=seed, steps=steps))
    assert mistakes == [bug]


@pytest.mark.parametrize("preset", some_by_default(["encdec_tiny", "mixed_tiny", "bert_tiny", "llama_tiny"], 4))
@pytest.mark.parametrize("bug", BUGS)
def test_every_mistake_is_named_in_any_transformer(preset, bug):
    all_laws, mistakes = diagnosis(made(preset, bug=bug))
    if bug == "no_scale":  # small at the start: seen, but not felt
        assert state(all_laws, SCALE) == DESIGN
    elif (preset, bug) == ("bert_tiny", "mask_inverted"):  # reads later tokens, as it may
        assert not broken(all_laws)
    else:
        assert mistakes == [bug]


def test_two_mistakes_are_both_named():
    config = node("gpt_tiny", "model/init=unit_variance")
    for bug in ("no_scale", "mask_inverted"):
        config.merge_with(OmegaConf.load(config_dir() / f"bug/{bug}.yaml").model)
    assert set(diagnosis(build(config))[1]) == {"no_scale", "mask_inverted"}


def test_dropout_on_the_weights_is_where_it_belongs():
    all_laws, _ = diagnosis(made("gpt_tiny", "model.attention.dropout=0.3", "model.dropout=0.2"))
    assert state(all_laws, DROPOUT) == HOLDS
    assert state(diagnosis(made())[0], DROPOUT) == NOT_ASKED


def test_the_model_and_the_random_numbers_stay_as_they_are():
    model = made().train()
    before = {name: p.clone() for name, p in model.state_dict().items()}
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    examine(model, words_of(model))
    assert torch.rand(1) == expected
    assert model.training
    assert all(torch.equal(before[name], p) for name, p in model.state_dict().items())
    assert all(getattr(module, "tap", None) is None for module in model.modules())


def test_what_cannot_be_probed_is_told():
    model = made()
    with torch.no_grad():
        model.embedding.weight[0] = float("nan")
    with pytest.raises(ConfigError, match="not all finite"):
        examine(model, words_of(model))
    with pytest.raises(ConfigError, match="at most 3 tokens"):
        examine(made("gpt_tiny", "model.max_len=3"), {"ids": 65})
