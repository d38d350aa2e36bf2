"""demo=memory: what is predicted by formula is what is counted and measured."""

import re

import pytest
import torch
from demos import small, table_of, text_of
from parts import node, options, some_by_default
from torch import nn

from minitf.config import build
from minitf.demo import measure
from minitf.demo.cost_attention import of_attention
from minitf.demo.memory import memory
from minitf.demo.record import batch_for, build_model

SIZES = {"batch": 3, "length": 7, "src_length": 5, "long_length": 8192, "long_heads": 32}
VARIANTS = [
    *([preset] for preset in options("model")),
    ["gpt_tiny", "model/attention=mqa", "model.attention.d_value=5", "model.attention.d_head=12", "model/ffn=relu"],
    ["gpt_tiny", "model/norm=none", "model/position=sinusoidal", "model.tie_embeddings=false", "model/mask=full"],
    ["gpt_tiny", "model/layer=post_norm", "model/attention/qk_norm=rms", "model/mask=sliding_window"],
    ["gpt_tiny", "model/attention/score=additive", "model/attention/projection=tied_kv", "model/ffn=moe"],
    ["encdec_tiny", "model/attention=mla", "model.attention.d_query_latent=12", "model.attention.d_value=5"],
    ["gpt_tiny", "model/attention=none", "model/ffn=none"],
    ["bert_tiny", "model/mask=causal"],
]


def numbers_of(preset: str, *overrides: str) -> str:
    return memory(config=small(preset, *overrides), **SIZES)


@pytest.mark.parametrize("choice", some_by_default(VARIANTS, 2), ids=" ".join)
def test_predicted_is_counted_for_every_part(choice):
    text = numbers_of(*choice)
    first, second = text.split("\n\n")[1:3]
    rows = [row for row in table_of(first).values() if len(row) == 4 and row[0] != "parameters"]
    assert len(rows) >= 5
    for params, counted, flops, counted_flops in rows:
        assert (params, flops) == (counted, counted_flops)
    measured = [row[-2:] for row in table_of(second).values() if row[-2:] != ["bytes", "measured"] and len(row) > 1]
    assert len(measured) >= 4
    assert all(predicted == found for predicted, found in measured)
    predicted, found = re.search(r"predicted ([0-9,]+), counted ([0-9,]+)\.", " ".join(text.split())).groups()
    assert predicted == found
    assert not re.search(r"(^|\s)-(\s|$)", text, re.MULTILINE), "something has no formula"


def test_what_has_no_formula_is_told(monkeypatch):
    monkeypatch.setattr("minitf.demo.parts.of_ffn", lambda ffn, rows: None)
    text = numbers_of("gpt_tiny")
    assert table_of(text)["feed-forward, 2 times"][::2] == ["-", "-"]
    assert table_of(text)["total"][::2] == ["-", "-"]
    assert "-: no formula for this part" in " ".join(text.split())


def test_scores_of_a_long_row_and_of_32_heads():
    """D5: 8192^2 = 67 M floats = 256 MB, 32 heads 8 GB."""
    text = " ".join(numbers_of("gpt_tiny", "model.n_layers=1").split())
    assert "67,108,864 numbers a head, 256 MiB in float32 (measured: 256 MiB); 32 heads: 8 GiB" in text


def test_one_key_value_head_saves_fewer_parameters_than_cache():
    """C8: d = 512, h = 8: 1,048,576 -> 589,824 parameters, an eighth of the cache."""
    overrides = ["model.d_model=512", "model.attention.n_heads=8", "model.n_layers=1"]
    shown = table_of(numbers_of("gpt_tiny", *overrides))
    assert shown["8 (this model)"][:2] == ["1,048,576", "4,096"]
    assert shown["1"] == ["589,824", "1.78 x fewer", "512", "8 x fewer"]
    assert shown["attention, 1 times"][:2] == ["1,048,576", "1,048,576"]
    one = table_of(numbers_of("gpt_tiny", *overrides, "model.attention.n_kv_heads=1"))
    assert one["attention, 1 times"][:2] == ["589,824", "589,824"]


def test_fewer_heads_are_told_for_the_matrices_that_there_are():
    shown = table_of(numbers_of("gpt_tiny", "model/attention/projection=tied_kv"))
    assert shown["key/value heads"][0] == "w_q, w_k, w_o"
    assert shown["4 (this model)"][0] == f"{3 * 16 * 16}"
    assert "2" not in table_of(numbers_of("gpt_tiny", "model/attention/projection=tied_qk"))


@pytest.mark.parametrize(("attention", "length"), [("mha", 3), ("mla", 3), ("mla", 1)])  # the last one reads latents
def test_cross_attention_is_counted_by_its_two_lengths(attention, length):
    made = node("gpt_tiny", f"model/attention={attention}")
    block = build(made.attention)(d_model=16, mask=build(made.mask))
    x, source = torch.randn(2, length, 16), torch.randn(2, 5, 16)
    position = build(node("gpt_tiny", "model/position=none").position)(
        d_model=16, d_head=4, n_heads=4, max_len=9, causal=True
    )
    pos = torch.arange(length)[None]
    with measure.by_definition(block), measure.FlopCounterMode(display=False) as counter:
        block(x, pos=pos, plain=True, position=position, memory=source)
    assert of_attention(block, 2, length, 5).flops == counter.get_total_flops()
    assert block.fast is not None


def test_what_is_kept_for_backward_counts_no_weights():
    model = nn.Sequential(nn.Linear(4, 3, bias=False), nn.Linear(3, 2, bias=False))
    x = torch.randn(5, 4)
    assert measure.saved_bytes(model, {"input": x}) == 4 * (5 * 4 + 5 * 3)


def test_caches_are_measured_token_by_token():
    config = small("llama_tiny", "model.attention.d_value=8")
    model = build_model(config)
    inputs = batch_for(model, config.data, 3, 6, 4)
    assert measure.cache_bytes(model, inputs) == (3 * 6 * 2 * 2 * (4 + 8) * 4, 0)
    assert measure.cache_bytes(build_model(small("gpt_tiny", "model/mask=full")), inputs) is None


def test_the_command_line_reaches_it():
    text = text_of("demo=memory", "model.n_layers=1", "demo.batch=1", "demo.length=3")
    assert "Decoder, a pass over 1 rows of 3 tokens" in text
