"""Copying by eigenvalues, and how much heads differ."""

import math

import parts
import pytest
import torch

from minitf.analysis.heads import diversity
from minitf.analysis.heads.copying import copying, copying_score, value_and_output
from minitf.analysis.sites import sites


def test_the_identity_copies_and_its_negative_does_the_opposite():
    one = torch.eye(5)
    assert copying_score(one, one) == pytest.approx(1)
    assert copying_score(one, -one) == pytest.approx(-1)
    turn = torch.tensor([[0.0, -1], [1, 0]])  # eigenvalues i and -i
    assert copying_score(turn, torch.eye(2)) == pytest.approx(0, abs=1e-9)
    assert copying_score(one, 1e-6 * one) == pytest.approx(1)  # direction, not size
    assert copying_score(torch.zeros(2, 5), torch.zeros(5, 2)).isnan()


def test_the_small_product_has_the_score_of_the_large_one():
    torch.manual_seed(0)
    read, write = torch.randn(3, 4, 20).double(), torch.randn(3, 20, 4).double()
    full = torch.linalg.eigvals(write @ read)  # W_U W_O W_V W_E, 20 x 20
    torch.testing.assert_close(copying_score(read, write), full.real.sum(-1) / full.abs().sum(-1))


PROJECTIONS = parts.options("model/attention/projection")
CASES = [("mha", name) for name in PROJECTIONS] + [("mla", None), ("gqa", "free"), ("mqa", "tied_kv")]


@pytest.mark.parametrize(("attention", "projection"), CASES)
def test_matrices_of_a_head_are_what_it_does(attention, projection):
    """Value and output matrices against the module itself: one token that reads itself."""
    overrides = [f"model/attention={attention}"]
    overrides += [f"model/attention/projection={projection}"] if projection else []
    overrides += ["model.attention.d_latent=6", "model.attention.d_rotary=4"] if attention == "mla" else []
    if attention == "mla":
        overrides.append("model/attention/qk_norm=none")
    block = parts.attention(*overrides)
    with torch.no_grad():
        for name, p in block.named_parameters():
            if name.endswith("bias") or "w_gate" in name:
                p.zero_()
    w_v, w_o = value_and_output(block.projection, block.n_heads)
    x = torch.randn(1, 1, 16)
    each = torch.einsum("hde,hef,btf->hbtd", w_o, w_v, x)
    scale = {"mean": 1 / block.n_heads, "gated": 0.5}.get(projection, 1.0)  # one factor for all heads
    torch.testing.assert_close(parts.attend(block, x), scale * each.sum(0), atol=1e-4, rtol=1e-4)


def test_a_model_that_copies_by_construction():
    for norm in ("rms", "layer", "none"):
        model = parts.model("gpt_tiny", f"model/norm={norm}", "model.tie_embeddings=true")
        projection = model.layers[0].attention.projection
        with torch.no_grad():
            model.embedding.weight.copy_(torch.randn(65, 16))
            for p in (*model.layers[0].attention_norm.parameters(), *model.final_norm.parameters()):
                p.fill_(1.0 if p is not getattr(model.final_norm, "bias", None) else 0.0)
            if norm == "layer":
                model.layers[0].attention_norm.bias.zero_()
            w_v = projection.by_head()["w_v"]
            w_o = projection.by_head()["w_o"]
            w_o.copy_(w_v.mT)  # positive: each head writes what it reads
            w_o[1] *= -1
        scores, reason = copying(model, sites(model)[0])
        assert reason == ""
        assert (scores[[0, 2, 3]] > 0.9).all()
        assert scores[1] < -0.9
        for part in (model.layers[0].attention_norm, model.final_norm):
            if norm != "none":  # a gain of -1 on the way turns it round
                with torch.no_grad():
                    part.weight.neg_()
                torch.testing.assert_close(copying(model, sites(model)[0])[0], -scores)
                with torch.no_grad():
                    part.weight.neg_()


def test_why_there_is_no_copying_score():
    def reasons(model):
        return [copying(model, site)[1] for site in sites(model)]

    both = parts.model("encdec_tiny")
    assert reasons(both) == ["an encoder writes no logits"] * 2 + [""] * 4
    both.source_embedding = torch.nn.Embedding(30, 16)
    assert reasons(both)[2:4] == ["", "30 tokens are read, 65 are written"]
    model = parts.model("llama_tiny")
    assert reasons(model) == ["", ""]
    model.head = torch.nn.Linear(16, 3)
    assert reasons(model) == ["65 tokens are read, 3 are written"] * 2
    model.head = torch.nn.Identity()
    assert reasons(model) == ["the outputs are no tokens"] * 2
    assert reasons(parts.model("bahdanau")) == ["the heads have no matrices of their own"]


def patterns(*heads):
    return torch.stack(heads)[None]


A, B = torch.eye(4), torch.eye(4).roll(1, 1)
ROWS = torch.ones(1, 4, dtype=torch.bool)


def test_divergence_is_0_for_equal_and_1_for_disjoint_patterns():
    found = diversity.js_divergence(patterns(A, A, B), ROWS).value
    torch.testing.assert_close(found, torch.tensor([[0, 0, 1], [0, 0, 1], [1, 1, 0.0]]).double())
    half = diversity.js_divergence(patterns(A, (A + B) / 2), ROWS).value[0, 1]
    # H((3/4, 1/4)) - H((1/2, 1/2)) / 2, in bits
    expected = (0.75 * math.log2(4 / 3) + 0.25 * 2) - 0.5
    assert half == pytest.approx(expected)
    assert diversity.mean_of_pairs(found) == pytest.approx(2 / 3)
    assert diversity.mean_of_pairs(torch.zeros(1, 1)).isnan()
    # rows that do not count
    some = torch.tensor([[True, False, False, False]])
    mixed = patterns(A, torch.cat([A[:1], B[1:]]))
    assert diversity.js_divergence(mixed, some).value[0, 1] == 0


def test_effective_heads_are_1_for_equal_and_h_for_orthogonal_patterns():
    def effective(*heads):
        return diversity.effective_heads(diversity.pattern_gram(patterns(*heads), ROWS))

    assert effective(A, A, A * 0.3) == pytest.approx(1)
    assert effective(A, B, A.roll(2, 1), A.roll(3, 1)) == pytest.approx(4)
    assert 1 < effective(A, A, B) < 2
    assert effective(A, torch.zeros(4, 4)) == pytest.approx(2)


def test_cka_does_not_see_rotation_scale_and_shift_and_adds_up():
    torch.manual_seed(0)
    z = torch.randn(1, 1, 400, 5)
    turn = torch.linalg.qr(torch.randn(5, 5)).Q
    outputs = torch.cat([z, 3 * (z @ turn) + 7, torch.randn(1, 1, 400, 5)], 1)
    rows = torch.ones(1, 400, dtype=torch.bool)
    whole = diversity.cka(diversity.moments(outputs, rows))
    assert whole[0, 1] == pytest.approx(1, abs=1e-5)
    assert whole[0, 2] < 0.05
    torch.testing.assert_close(whole.diagonal(), torch.ones(3).double())
    two = [diversity.moments(outputs[:, :, s], rows[:, s]) for s in (slice(150), slice(150, 400))]
    torch.testing.assert_close(diversity.cka(two[0] + two[1]), whole)
    # by definition, for one pair
    x, y = (outputs[0, h].double() - outputs[0, h].double().mean(0) for h in (0, 2))
    expected = (x.T @ y).norm() ** 2 / ((x.T @ x).norm() * (y.T @ y).norm())
    torch.testing.assert_close(whole[0, 2], expected)
    constant = torch.cat([z, torch.full_like(z, 0.1)], 1)
    assert diversity.cka(diversity.moments(constant, rows))[0, 1].isnan()
