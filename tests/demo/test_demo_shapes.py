"""demo=shapes tells the shapes that the texts give (D1 to D4), for any model."""

import re

import pytest
import torch
from demos import composed, small, table_of, text_of
from parts import node
from torch import nn

from minitf.blocks.stack import Stack
from minitf.config import build, group_options
from minitf.demo.letters import Letters
from minitf.demo.record import batch_for, record
from minitf.demo.shapes import _experts, shapes

SMALL = ["demo=shapes", "model.d_model=64", "model.attention.n_heads=8"]


def test_eight_heads_of_eight_give_eight_by_eight_and_come_together_as_64():
    """D1, D2: L = 8, d = 64, h = 8."""
    shown = table_of(text_of(*SMALL, "demo.batch=1", "demo.length=8"))
    assert shown["attention.projection.w_q"] == ["(B, T, H*d)", "(1, 8, 64)", "(64, 64)"]
    assert shown["attention.q"] == ["(B, H, T, d)", "(1, 8, 8, 8)"]
    assert shown["attention.heads"] == ["(B, H, T, d)", "(1, 8, 8, 8)"]
    assert shown["attention.projection.merged heads"] == ["(B, T, H*d)", "(1, 8, 64)"]
    assert shown["attention.projection.w_o"] == ["(B, T, D)", "(1, 8, 64)", "(64, 64)"]
    assert shown["head"] == ["(B, T, V)", "(1, 8, 65)", "(65, 64)"]


def test_rows_of_a_batch_are_multiplied_side_by_side():
    """D3: (B,L,d)(B,d,L) -> (B,L,L)."""
    shown = table_of(text_of(*SMALL, "demo.batch=3", "demo.length=5"))
    assert shown["attention.q"] == shown["attention.k"] == ["(B, H, T, d)", "(3, 8, 5, 8)"]
    assert shown["attention.scores"] == shown["attention.weights"] == ["(B, H, T, T)", "(3, 8, 5, 5)"]


def test_every_width_has_a_letter_of_its_own():
    options = ["model=llama_tiny", "model.d_model=48", "model.attention.d_value=5", "model.ffn.d_ff=7"]
    text = text_of("demo=shapes", *options, "model.tie_embeddings=false")
    shown = table_of(text)
    assert shown["attention.k"] == ["(B, G, T, d)", "(2, 2, 8, 12)"]
    assert shown["attention.v"] == ["(B, G, T, d_v)", "(2, 2, 8, 5)"]
    assert shown["attention.projection.w_v"] == ["(B, T, G*d_v)", "(2, 8, 10)", "(10, 48)"]
    assert shown["attention.projection.merged heads"] == ["(B, T, H*d_v)", "(2, 8, 20)"]
    assert shown["ffn.hidden"] == ["(B, T, F)", "(2, 8, 7)"]
    assert "G = 2 key/value heads" in " ".join(text.split())


def test_equal_layers_are_told_once_and_others_apart():
    lines = text_of("demo=shapes", "model.n_layers=3").splitlines()
    assert [line for line in lines if "layer" in line] == ["layer 0", "layers 1-2: the same"]
    model = Twice()
    wide = build(node("gpt_tiny", "model.d_model=16", "model.ffn.d_ff=9").ffn)(d_model=16)
    model.encoder.layers[1].ffn = wide
    steps = {step.name: step.shape for step in record(model, batch_for(model, composed().data, 2, 5, 3))}
    assert steps["encoder.layers.0.ffn.hidden"] == (2, 3, 64)
    assert steps["encoder.layers.1.ffn.hidden"] == (2, 3, 9)


def test_equal_experts_are_told_once_whatever_number_of_tokens_they_get():
    text = shapes(batch=2, length=9, src_length=1, config=small("gpt_tiny", "model/ffn=moe"))
    lines = [line.strip() for line in text.splitlines()]
    assert [line for line in lines if "same" in line] == ["ffn.experts.1-3: the same", "layer 1: the same"]
    shown = table_of(text)
    assert shown["ffn.experts.0.w_in"][0] == "(n, F)"
    assert shown["ffn.experts.0.w_out"][0] == "(n, D)"
    assert not any(key.startswith(("ffn.experts.1.", "ffn.experts.2.")) for key in shown)
    assert "n = " in text


def test_experts_that_differ_are_told_apart():
    line = lambda i, width: (f"  ffn.experts.{i}.w_in", f"(n, {width})", f"(3, {width})", "")  # noqa: E731
    told = _experts([line(0, 4), line(1, 4), line(2, 5), line(3, 5), ("  resid_out", "(B, T, D)", "", "")])
    names = ["  ffn.experts.0.w_in", "  ffn.experts.1: the same", "  ffn.experts.2.w_in", "  ffn.experts.3: the same"]
    assert [row[0] for row in told] == [*names, "  resid_out"]


class Twice(nn.Module):
    """The least that reads two sequences."""

    def __init__(self):
        super().__init__()
        parts = {
            k: v for k, v in node("gpt_tiny").items() if k in ("attention", "position", "mask", "ffn", "norm", "layer")
        }
        made = {name: build(part) for name, part in parts.items()}
        sizes = {"max_len": 32, "d_model": 16, "n_layers": 2, "dropout": 0.0}
        self.embedding = nn.Embedding(65, 16)
        self.encoder = Stack(**sizes, **made)
        self.decoder = Stack(**sizes, **made, cross_attention=made["attention"])

    def forward(self, src, src_pos, ids, pos=None):
        memory = self.encoder.run(self.embedding(src), src_pos)
        return self.decoder.run(self.embedding(ids), pos, memory=memory, memory_pos=src_pos)


def test_cross_attention_is_not_square():
    """D4: B x T x S."""
    model = Twice()
    inputs = batch_for(model, composed().data, 2, 5, 3)
    letters = Letters(model, composed("model.d_model=16"), 2, 5, 3)
    shown = {step.name: (letters.of(step.name, step.shape), step.shape) for step in record(model, inputs)}
    assert shown["decoder.layers.0.cross_attention.scores"] == ("(B, H, T, S)", (2, 4, 5, 3))
    assert shown["decoder.layers.0.cross_attention.k"] == ("(B, H, S, d)", (2, 4, 3, 4))
    assert shown["decoder.layers.0.attention.scores"] == ("(B, H, T, T)", (2, 4, 5, 5))
    assert shown["encoder.layers.1.attention.weights"] == ("(B, H, S, S)", (2, 4, 3, 3))


@pytest.mark.parametrize("name", group_options("model"))
def test_every_model_can_be_shown_and_no_axis_of_a_tap_point_is_nameless(name):
    shown = table_of(shapes(batch=2, length=8, src_length=6, config=small(name)))
    points = ("ids", "scores", "weights", "resid_out", "head")
    letters = {key: row[0] for key, row in shown.items() if key.endswith(points)}
    assert len(letters) > 1
    # an axis of size 1 stands for nothing
    assert not [key for key, axes in letters.items() if re.search(r"[02-9]|1\d", axes)]


def test_recording_leaves_the_model_as_it_was():
    model = build(node("gpt_tiny")).eval()
    inputs = batch_for(model, composed().data, 2, 5, 3)
    before = model(**inputs)
    record(model, inputs)
    assert torch.equal(model(**inputs), before)
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())


def test_rows_and_tokens_in_one_axis_keep_their_letters():
    letters = Letters(nn.Identity(), composed(), 2, 8, None)
    assert letters.of("ffn.router", (16, 4)) == "(B*T, 4)"
    assert letters.of("head", (2, 4)) == "(B, C)"
    assert letters.of("head.output", (16, 65)) == "(B*T, V)"
    assert letters.used == {"B": 2, "T": 8, "C": 4, "V": 65}
