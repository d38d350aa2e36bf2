"""The formulas of demo=memory know every option of every group: what they predict is what torch counts."""

import pytest
import torch
from demos import small
from omegaconf import OmegaConf
from parts import nested, options, own, some_by_default
from torch import nn

from minitf.config import build, config_groups
from minitf.demo import measure
from minitf.demo.cost import Cost, Sizes, of_ffn
from minitf.demo.cost_attention import of_attention, of_projection
from minitf.demo.cost_score import of_score
from minitf.demo.part import Shape
from minitf.demo.parts import parts
from minitf.demo.record import batch_for, build_model

# one that also reads a source, of another length than its own row
BASE = ("encdec_tiny", "model.n_encoder_layers=1", "model.n_decoder_layers=1")
OTHERS = {"model/head": ("bert_tiny", "model.n_layers=1"), "model/mask": ("gpt_tiny", "model.n_layers=1")}
ASKED_BY = {"pointer": ("pointer_tiny", *BASE[1:]), "none": ("gpt_tiny", "model.n_layers=1")}
# an inner group is met with the option that holds it; what is inside of attention has its own turn
GROUPS = [g for g in config_groups() if g.startswith("model/") and g.rpartition("/")[0] in ("model", "model/attention")]


def choices():
    for group in GROUPS:
        for choice in options(group) if group == "model/attention" else nested(group):
            base = ASKED_BY.get(choice) or OTHERS.get(group, BASE)
            place = group.removeprefix("model/").replace("/", ".")
            yield pytest.param(base, {place: (group, choice)}, id=f"{group}={choice}")
    for choice in options("model/attention/score"):  # scores have other places, too
        score = ("model/attention/score", choice)
        for base, place in (("luong", "attention"), ("bahdanau", "attention"), ("pointer_tiny", "head")):
            yield pytest.param((base,), {f"{place}.score": score}, id=f"{base}-{choice}")
    for base in ("luong", "bahdanau"):
        yield pytest.param((base,), {"attention.normalize": ("model/attention/normalize", "sink")}, id=f"{base}-sink")
    for choice in ("mean", "tied_kv", "tied_qk", "no_wq", "gated"):
        projection = {"attention.projection": ("model/attention/projection", choice)}
        yield pytest.param(BASE, {"init": ("model/init", "sigma_reparam"), **projection}, id=f"sigma_reparam-{choice}")


def assert_predicted(config):
    model = build_model(config)
    inputs = batch_for(model, config.data, 2, 6, 4)
    counted, output = measure.forward_flops(model, inputs)
    shape = Shape(2, 6, 4 if "src" in inputs else None, output.numel() // output.size(-1))
    rows = parts(model, config, shape)
    assert not [row.title for row in rows if row.cost is None], "no formula"
    total = sum((row.cost for row in rows), Cost())
    assert total.params == sum(p.numel() for p in model.parameters())
    assert total.flops == counted[""] > 0
    assert total.training == measure.training_flops(model.train(), inputs)


@pytest.mark.parametrize(("base", "chosen"), some_by_default(choices(), 8))
def test_every_option_has_a_formula(base, chosen):
    config = small(*base)
    for place, option in chosen.items():
        OmegaConf.update(config.model, place, own(*option), merge=False)
    assert_predicted(config)


def test_layers_that_differ_are_predicted_one_by_one():
    recipes = {
        "a": {"attention": own("model/attention", "mqa+score=general"), "ffn": own("model/ffn", "moe+expert=swiglu")},
        "b": {"attention": own("model/attention", "none"), "norm": own("model/norm", "rms")},
        "c": {"position": own("model/position", "relative_bias"), "layer": own("model/layer", "sandwich")},
    }
    config = small("llama_tiny", "model.n_layers=4")
    OmegaConf.update(config.model, "recipes", recipes, merge=False)
    OmegaConf.update(config.model, "pattern", ["a", "b", "c", "other"], merge=False)
    assert_predicted(config)


@pytest.mark.parametrize(
    "overrides",
    [
        ["model.attention.n_kv_heads=2", "model.attention.d_value=5", "model.attention.d_head=12"],
        ["model.attention.projection.bias=true", "model.ffn.bias=true", "model.ffn.d_ff=10"],
        ["model.tie_embeddings=false", "model.n_encoder_layers=3"],
        ["model.cross_attention=${model.attention}", "model.attention.n_heads=2"],
    ],
    ids=" ".join,
)
def test_sizes_have_their_place_in_the_formulas(overrides):
    assert_predicted(small("encdec_tiny", *overrides))


def test_formulas_by_hand():
    n = Sizes(B=2, T=3, S=5, D=8, H=4, G=2, d=6, d_v=7)
    sizes = {"d_model": 8, "n_heads": 4, "n_kv_heads": 2, "d_head": 6, "d_value": 7}
    free = build(own("model/attention/projection", "free"))(**sizes)
    assert of_projection(free, n).params == 8 * 24 + 8 * 12 + 8 * 14 + 28 * 8
    assert of_projection(free, n).flops == 2 * (6 * 8 * 24 + 10 * 8 * 12 + 10 * 8 * 14 + 6 * 28 * 8)
    additive = build(own("model/attention/score", "additive"))(d_head=6, n_heads=4)
    assert of_score(additive, n) == Cost(params=4 * (36 + 36 + 6), flops=2 * 2 * 4 * (8 * 36 + 3 * 5 * 6))


def test_cost_adds_up():
    a, b = Cost(params=3, flops=10, spared=4), Cost(params=1, flops=5)
    assert (a + b).training == 3 * 15 - 4
    assert a * 2 == Cost(params=3, flops=20, spared=8)


def test_a_part_without_a_formula_is_measured_only():
    assert of_ffn(nn.Linear(4, 4), 3) is None
    block = build_model(small("gpt_tiny")).layers[0].attention
    assert of_attention(block, 2, 4, 4) is not None
    block.score.extra = nn.Parameter(torch.zeros(3))
    assert of_attention(block, 2, 4, 4) is None

    class Other(nn.Module):
        """No score that the formulas know."""

    block.score = Other()
    assert of_attention(block, 2, 4, 4) is None
