"""demo=memory: what is predicted by formula is what is counted and measured."""

import re

import pytest
import torch
from demos import table_of, text_of
from parts import node
from torch import nn

from minitf.config import build, compose
from minitf.demo import measure
from minitf.demo.cost import Sizes, of_attention, of_ffn, projections
from minitf.demo.record import batch_for, build_model

VARIANTS = [
    [],
    ["model=llama_tiny"],
    ["model=llama_tiny", "demo.batch=3", "demo.length=7"],
    ["model/attention=mqa", "model.attention.d_value=5", "model.attention.d_head=12", "model/ffn=relu"],
    ["model/attention=gqa", "model/ffn=swiglu", "model.ffn.bias=true", "model.attention.projection.bias=true"],
    ["model/norm=none", "model/position=sinusoidal", "model.tie_embeddings=false", "model/mask=full"],
    ["model/layer=post_norm", "model/norm=rms", "model/attention/qk_norm=rms", "model/mask=sliding_window"],
    ["model/attention/qk_norm=layer", "model.ffn.d_ff=10", "model.n_layers=1", "data.seq_len=64"],
]


@pytest.mark.parametrize("overrides", VARIANTS, ids=lambda o: " ".join(o) or "default")
def test_predicted_is_counted_for_every_part(overrides):
    text = text_of("demo=memory", *overrides)
    first, second = text.split("\n\n")[1:3]
    rows = [row for row in table_of(first).values() if len(row) == 4 and row[0] != "parameters"]
    assert len(rows) >= 6
    for params, counted, flops, counted_flops in rows:
        assert (params, flops) == (counted, counted_flops)
    measured = [row[-2:] for row in table_of(second).values() if row[-2:] != ["bytes", "measured"]]
    known = [row for row in measured if row[0] != "-"]
    assert len(known) >= 4
    assert all(predicted == found for predicted, found in known)
    predicted, found = re.search(r" = ([0-9,]+) FLOPs; counted ([0-9,]+)\.", " ".join(text.split())).groups()
    assert predicted == found


def test_scores_of_a_long_row_and_of_32_heads():
    """D5: 8192^2 = 67 M floats = 256 MB, 32 heads 8 GB."""
    text = " ".join(text_of("demo=memory").split())
    assert "67,108,864 numbers a head, 256 MiB in float32 (measured: 256 MiB); 32 heads: 8 GiB" in text


def test_one_key_value_head_saves_fewer_parameters_than_cache():
    """C8: d = 512, h = 8: 1,048,576 -> 589,824 parameters, an eighth of the cache."""
    overrides = ["model.d_model=512", "model.attention.n_heads=8", "model.n_layers=1"]
    shown = table_of(text_of("demo=memory", *overrides))
    assert shown["8 (this model)"][:2] == ["1,048,576", "4,096"]
    assert shown["1"] == ["589,824", "1.78 x fewer", "512", "8 x fewer"]
    assert shown["attention, 1 times"][:2] == ["1,048,576", "1,048,576"]
    one = table_of(text_of("demo=memory", *overrides, "model.attention.n_kv_heads=1"))
    assert one["attention, 1 times"][:2] == ["589,824", "589,824"]


def test_formulas_by_hand():
    n = Sizes(B=2, T=3, S=5, D=8, H=4, G=2, d=6, d_v=7)
    assert projections(n).params == 8 * 24 + 8 * 12 + 8 * 14 + 28 * 8
    assert projections(n).flops == 2 * (6 * 8 * 24 + 10 * 8 * 12 + 10 * 8 * 14 + 6 * 28 * 8)


def test_cross_attention_is_counted_by_its_two_lengths():
    block = build(node("gpt_tiny").attention)(d_model=16, mask=build(node("gpt_tiny").mask))
    x, memory = torch.randn(2, 3, 16), torch.randn(2, 5, 16)
    position = build(node("gpt_tiny", "model/position=none").position)(
        d_model=16, d_head=4, n_heads=4, max_len=9, causal=True
    )
    pos = torch.arange(3)[None]
    with measure.by_definition(block), measure.FlopCounterMode(display=False) as counter:
        block(x, pos=pos, plain=True, position=position, memory=memory)
    assert of_attention(block, 2, 3, 5).flops == counter.get_total_flops()
    assert block.fast is not None


def test_a_part_without_a_formula_is_measured_only():
    assert of_ffn(nn.Linear(4, 4), 3) is None
    model = build_model(compose("demo"))
    block = model.layers[0].attention
    block.score.extra = nn.Parameter(torch.zeros(3))
    assert of_attention(block, 2, 4, 4) is None


def test_what_is_kept_for_backward_counts_no_weights():
    model = nn.Sequential(nn.Linear(4, 3, bias=False), nn.Linear(3, 2, bias=False))
    x = torch.randn(5, 4)
    assert measure.saved_bytes(model, {"input": x}) == 4 * (5 * 4 + 5 * 3)


def test_caches_are_measured_token_by_token():
    config = compose("demo", ["model=llama_tiny", "model.attention.d_value=8"])
    model = build_model(config)
    inputs = batch_for(model, config.data, 3, 6, 4)
    assert measure.cache_bytes(model, inputs) == (3 * 6 * 4 * 2 * (32 + 8) * 4, 0)
    assert measure.cache_bytes(build_model(compose("demo", ["model/mask=full"])), inputs) is None
