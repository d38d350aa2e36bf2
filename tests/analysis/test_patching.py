import parts
import pytest
import torch

from minitf.analysis.forward import run
from minitf.analysis.intervene.patching import activations, patch, patch_heads, patch_places, patch_points
from minitf.analysis.intervene.paths import path_patch
from minitf.analysis.sites import sites
from minitf.errors import ConfigError, DataError
from minitf.tap import Tap


def two(model, length=9):
    torch.manual_seed(2)
    batches = [{"ids": torch.randint(31, (2, length))} for _ in range(2)]
    if hasattr(model, "encode"):
        for batch in batches:
            batch["src"] = torch.randint(31, (2, 7))
    return batches


def logit(logits):
    return logits[:, -1, 3].mean()


@pytest.mark.parametrize("preset", ["gpt_tiny", "llama_tiny", "bert_tiny", "encdec_tiny"])
def test_all_of_a_run_is_that_run_and_nothing_of_it_changes_nothing(preset):
    model = parts.model(preset, scale=4)
    clean, corrupt = two(model)
    with torch.no_grad():
        everything = activations(model, clean, ["*.resid_out"])
        with patch(model, everything):
            assert torch.equal(run(model, corrupt), run(model, clean))
        with patch(model, {}):
            assert torch.equal(run(model, corrupt), run(model, corrupt))
        none = torch.zeros(2, 9, dtype=torch.bool)
        decoder = {k: v for k, v in everything.items() if not k.startswith("encoder")}
        with patch(model, decoder, places=none):
            assert torch.equal(run(model, corrupt), run(model, corrupt))


def test_shares_of_points_heads_and_places():
    model = parts.model("gpt_tiny", scale=4)
    clean, corrupt = two(model)
    shares = patch_points(model, clean, corrupt, logit, "resid_out")
    assert shares["layers.1.resid_out"] == 1.0
    assert patch_points(model, clean, corrupt, logit, "resid_in")["layers.0.resid_in"] == 1.0
    mlp = patch_points(model, clean, corrupt, logit, "mlp")
    assert list(mlp) == ["layers.0.ffn.hidden", "layers.1.ffn.hidden"]
    # the metric reads the last place of the last layer only
    places = patch_places(model, clean, corrupt, logit, "layers.1.resid_out")
    assert places == [0.0] * 8 + [1.0]
    heads = patch_heads(model, clean, corrupt, logit)
    assert len(heads) == 8
    site = sites(model)[1]
    point = site.point("heads")
    with torch.no_grad():
        there = activations(model, clean, [point])[point]

        def by_hand(value):
            value = value.clone()
            value[:, 2] = there[:, 2]
            return value

        ends = [float(logit(run(model, b))) for b in (corrupt, clean)]
        with Tap(model, edit={point: by_hand}):
            value = float(logit(run(model, corrupt)))
    assert heads[site, 2] == pytest.approx((value - ends[0]) / (ends[1] - ends[0]), rel=1e-4)
    with pytest.raises(DataError, match="both runs have the metric"):
        patch_heads(model, clean, clean, logit)
    with pytest.raises(DataError, match="the same shape"):
        patch_heads(model, clean, {"ids": corrupt["ids"][:, :5]}, logit)


def softmax_rows(q, k, v):
    scores = q @ k.mT / q.size(-1) ** 0.5
    hidden = torch.ones(q.size(-2), k.size(-2)).triu(1).bool()
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v


def by_hand(model, source, target, head, number, receives):
    """Two pre-norm layers without rotation, written out."""
    first, second = model.layers
    with Tap(model, at=["layers.0.attention.heads"]) as tap:
        run(model, source)
        sent = tap["layers.0.attention.heads"]
    points = ["layers.0.attention.heads", "layers.1.resid_in", "layers.1.attention.[qkv]"]
    with Tap(model, at=points) as tap:
        run(model, target)
    own, x = tap["layers.0.attention.heads"], tap["layers.1.resid_in"]
    w_o = first.attention.projection.by_head()["w_o"][head]  # (D,d)
    change = (sent[:, head] - own[:, head]) @ w_o.T
    if number is None:
        x_end = x + change + _written(second, x)
        return model.head(model.final_norm(x_end))
    normed = second.attention_norm(x + change)
    new = getattr(second.attention.projection, receives)(normed)
    q, k, v = (tap[f"layers.1.attention.{name}"].clone() for name in "qkv")
    {"q": q, "k": k, "v": v}[receives][:, number] = new[:, number]
    middle = x + second.attention.projection.out(softmax_rows(q, k, v), normed)
    return model.head(model.final_norm(middle + second.ffn(second.ffn_norm(middle))))


def _written(layer, x):
    """What a layer adds to its own stream."""
    n = layer.attention_norm(x)
    p = layer.attention.projection
    middle = x + p.out(softmax_rows(p.q(n), p.k(n), p.v(n)), n)
    return middle + layer.ffn(layer.ffn_norm(middle)) - x


@pytest.mark.parametrize(("number", "receives"), [(2, "q"), (0, "k"), (3, "v"), (None, "q")])
def test_one_edge_of_two_layers_equals_the_computation_written_out(number, receives):
    model = parts.model("gpt_tiny", scale=4)
    source, target = two(model)
    first, second = sites(model)
    receiver = None if number is None else (second, number)
    with torch.no_grad():
        expected = by_hand(model, source, target, 1, number, receives)
        got = path_patch(model, source, target, (first, 1), receiver, receives)
        assert torch.allclose(got, expected, atol=1e-4)
        assert not torch.allclose(got, run(model, target), atol=1e-3)


@pytest.mark.parametrize("preset", ["llama_tiny", "encdec_tiny", "vaswani_tiny"])
def test_an_edge_backwards_or_of_the_same_run_changes_nothing(preset):
    model = parts.model(preset, scale=4)
    source, target = two(model)
    first, last = sites(model)[0], sites(model)[-1]
    with torch.no_grad():
        own = run(model, target)
        assert torch.allclose(path_patch(model, source, target, (last, 1), (first, 0), "k"), own, atol=1e-5)
        assert torch.allclose(path_patch(model, target, target, (first, 1), (last, 0), "k"), own, atol=1e-5)
        assert not torch.allclose(path_patch(model, source, target, (first, 1), (last, 0), "v"), own, atol=1e-5)


def test_what_cannot_be_held_fixed_is_refused():
    for choice, words in (("model/ffn=moe", "MoE has no tap point"), ("model/attention/projection=gated", "gate")):
        model = parts.model("gpt_tiny", choice)
        first, second = sites(model)
        with pytest.raises(ConfigError, match=words):
            path_patch(model, *two(model), (first, 0), (second, 0))
    with pytest.raises(ConfigError, match="must be one of q, k, v"):
        path_patch(model, *two(model), (first, 0), (second, 0), "o")
