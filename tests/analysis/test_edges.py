import parts
import pytest
import torch

from minitf.analysis.forward import run
from minitf.analysis.intervene.choice import all_heads, grouped
from minitf.analysis.intervene.edges import knock_out, other_rows, row_test, total_variation
from minitf.analysis.sites import sites
from minitf.errors import ConfigError
from minitf.tap import Tap


def batch_of(rows=2, length=8, **more):
    torch.manual_seed(1)
    return {"ids": torch.randint(31, (rows, length)), **more}


def weights_of(model, batch, site):
    with Tap(model, at=site.point("weights")) as tap:
        run(model, batch)
    return tap[site.point("weights")]


@pytest.mark.parametrize("normalize", parts.options("model/attention/normalize"))
def test_without_an_edge_the_others_share_the_weight_as_if_it_were_masked(normalize):
    model = parts.model("gpt_tiny", f"model/attention/normalize={normalize}", scale=4)
    site, batch = sites(model)[0], batch_of()
    edges = torch.zeros(8, 8, dtype=torch.bool)
    edges[5, 2] = edges[7, 0] = edges[3, 5] = True
    edges[4, :5] = True  # all that query 4 sees
    with torch.no_grad():
        own = weights_of(model, batch, site)
        with knock_out(model, edges, {site: [1]}):
            cut = weights_of(model, batch, site)
        attention = model.get_submodule(site.prefix)
        with Tap(model, at=site.point("scores")) as tap:
            run(model, batch)
        seen = torch.ones(8, 8).tril().bool() & ~edges
        if normalize == "sigmoid":  # which counts the visible keys
            expected = own * seen
        else:
            expected = attention.normalize(tap[site.point("scores")], seen[None, None])
    assert torch.equal(cut[:, [0, 2, 3]], own[:, [0, 2, 3]])
    assert torch.allclose(cut[:, 1], expected[:, 1], atol=1e-5)
    assert (cut[:, 1, 4] == 0).all()
    assert cut.isfinite().all()


def test_edges_of_one_row_only():
    model = parts.model("gpt_tiny", scale=4)
    site, batch = sites(model)[0], batch_of()
    edges = torch.zeros(2, 8, 8, dtype=torch.bool)
    edges[1, 5, 2] = True
    with torch.no_grad(), knock_out(model, edges, {site: range(4)}):
        cut = weights_of(model, batch, site)
    assert (cut[1, :, 5, 2] == 0).all()
    assert (cut[0, :, 5, 2] > 0).all()


@pytest.mark.parametrize("padding", parts.PADDINGS)
def test_uniform_rows_equal_a_model_whose_scores_are_all_alike(padding):
    model = parts.model("gpt_tiny", scale=4)
    pos = parts.padded([8, 5], padding)
    batch = batch_of() if pos is None else batch_of(pos=pos)
    with torch.no_grad():
        with other_rows(model, batch, grouped(all_heads(model)), "uniform"):
            uniform = run(model, batch)
        before = run(model, batch)
        for layer in model.layers:
            layer.attention.projection.w_q.weight.zero_()
        alike = run(model, batch)
    real = torch.ones(2, 8, dtype=torch.bool) if pos is None else pos >= 0
    assert torch.allclose(uniform[real], alike[real], atol=1e-5)
    assert not torch.allclose(uniform[real], before[real], atol=1e-2)


def test_permuted_rows_hold_the_same_weights_at_other_visible_keys():
    model = parts.model("llama_tiny", scale=6)
    site, batch = sites(model)[0], batch_of(pos=parts.padded([8, 5], "left"))
    with torch.no_grad():
        own = weights_of(model, batch, site)
        shuffled = []
        for seed in (0, 0, 1):
            with other_rows(model, batch, {site: [0, 2]}, "permute", seed):
                shuffled.append(weights_of(model, batch, site))
    first, again, other = shuffled
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(first[:, [1, 3]], own[:, [1, 3]])
    assert torch.equal(first.sort(-1).values, own.sort(-1).values)
    assert ((first == 0) == (own == 0)).all(), "hidden keys stay hidden"
    assert not torch.equal(first[:, 0], own[:, 0])


def test_the_distance_is_reported_by_class_of_position():
    model = parts.model("gpt_tiny", scale=6)
    batch = batch_of(rows=4)
    first = torch.zeros(4, 8, dtype=torch.bool)
    first[:, 0] = True
    classes = {"first": first, "later": ~first, "none": torch.zeros_like(first)}
    found = row_test(model, batch, classes=classes)
    assert found["first"] < 1e-6, "a query that sees one key has only one pattern"
    assert 0.01 < found["later"] <= 1
    assert found["none"] != found["none"]
    with torch.no_grad():
        own = run(model, batch).softmax(-1)
        with other_rows(model, batch, grouped(all_heads(model)), "uniform"):
            distance = total_variation(own, run(model, batch).softmax(-1))
    assert row_test(model, batch, how="uniform")["all"] == pytest.approx(float(distance.median()))
    with pytest.raises(ConfigError, match="uniform, permute"):
        row_test(model, batch, how="reverse")


def test_total_variation_by_hand():
    p = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.3, 0.7]])
    q = torch.tensor([[0.0, 1.0], [0.5, 0.5], [0.5, 0.5]])
    assert total_variation(p, q).tolist() == pytest.approx([1.0, 0.0, 0.2])


def test_cross_attention_has_edges_too():
    model = parts.model("encdec_tiny", scale=4)
    batch = batch_of(src=torch.randint(31, (2, 6)), src_pos=parts.padded([6, 4], "right"))
    (site,) = (s for s in sites(model) if s.kind == "cross" and s.layer == 1)
    with torch.no_grad():
        with other_rows(model, batch, {site: range(4)}, "uniform"):
            uniform = weights_of(model, batch, site)
        with knock_out(model, torch.tensor([True] + [False] * 5).expand(8, 6), {site: [0]}):
            cut = weights_of(model, batch, site)
    assert uniform[0].flatten().tolist() == pytest.approx([1 / 6] * (4 * 8 * 6))
    assert uniform[1, 0, 0].tolist() == pytest.approx([0.25] * 4 + [0, 0])
    assert (cut[:, 0, :, 0] == 0).all()
    assert (cut[:, 1, :, 0] > 0).all()
