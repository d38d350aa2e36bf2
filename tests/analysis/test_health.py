import itertools
import math

import parts
import pytest
import scipy.spatial
import torch
from torch import nn

from minitf.analysis import attention_rows, stream
from minitf.analysis.alarms import Alarms, short
from minitf.analysis.health import LayerHealth, health
from minitf.config import build
from minitf.positions import packed
from minitf.tap import Tap


def batch_of(model, rows=3, length=12, n_answers=9):
    torch.manual_seed(1)
    batch = {"ids": torch.randint(31, (rows, length)), "targets": torch.randint(n_answers, (rows, length))}
    if hasattr(model, "encode"):
        batch["src"] = torch.randint(31, (rows, n_answers))
    return batch


def state(model):
    return [p.clone() for p in model.parameters()], [m.training for m in model.modules()], torch.get_rng_state()


@pytest.mark.parametrize("preset", parts.options("model"))
def test_every_architecture_is_measured_and_left_as_it_was(preset):
    model = parts.model(preset).train()
    batch = batch_of(model)
    before = state(model)
    found = health(model, batch)
    after = state(model)
    assert all(map(torch.equal, before[0], after[0]))
    assert before[1] == after[1]
    assert torch.equal(before[2], after[2])
    assert all(p.grad is None for p in model.parameters())
    assert all(math.isfinite(value) for one in found for value in one.values().values())
    expected = {"gru_none": [], "bahdanau": ["cross"], "luong": ["cross"]}
    both = ["encoder", "encoder", "decoder", "cross", "decoder", "cross"]
    default = both if hasattr(model, "encode") else ["self", "self"]
    assert [one.kind for one in found] == expected.get(preset, default)
    for one in found:
        if preset not in expected:
            assert set(one.gradients) == {"w_q", "w_k", "w_v", "w_o"}
            assert (one.relative_residual is None) == (one.kind == "cross")
            assert one.max_logit > 0


def test_the_residual_stream_by_hand():
    x, real = torch.randn(2, 7, 5), torch.ones(2, 7, dtype=torch.bool)
    real[1, 4:] = False
    x[1, 4:] = 1e6
    for i, n in enumerate((7, 4)):
        own = x[i, :n]
        centred = own - own.mean(0)
        assert stream.relative_residual(x, real)[i] == pytest.approx(float(centred.norm() / own.norm()), rel=1e-5)
        cosines = [nn.functional.cosine_similarity(own[s], own[t], dim=0) for s in range(n) for t in range(n) if s != t]
        assert stream.token_cosine(x, real)[i] == pytest.approx(float(torch.stack(cosines).mean()), abs=1e-6)
        assert stream.dirichlet_energy(x, real)[i] == pytest.approx(float(centred.square().sum()), rel=1e-5)
        values = torch.linalg.svdvals(own)
        share = values / values.sum()
        rank = float((-share * share.log()).sum().exp())
        assert stream.effective_rank(x, real)[i] == pytest.approx(rank, rel=1e-4)


def test_tokens_that_are_alike_or_alone():
    alike, real = torch.ones(1, 6, 4), torch.ones(1, 6, dtype=torch.bool)
    assert stream.relative_residual(alike, real) == 0
    assert stream.token_cosine(alike, real) == pytest.approx(1)
    assert stream.effective_rank(alike, real) == pytest.approx(1)
    assert stream.effective_rank(torch.eye(4)[None], real[:, :4]) == pytest.approx(4)
    alone = real.clone()
    alone[:, 1:] = False
    assert all(f(alike, alone).isnan() for f in (stream.relative_residual, stream.token_cosine, stream.effective_rank))


def test_rows_of_attention_by_hand():
    p = torch.tensor([[0.5, 0.25, 0.25, 0.0], [1 / 3, 1 / 3, 1 / 3, 0.0], [1.0, 0.0, 0.0, 0.0], [0.995, 0.005, 0, 0]])
    by_hand = [float((row.diag() - row[:, None] * row).norm()) for row in p]
    assert attention_rows.jacobian_norm(p).tolist() == pytest.approx(by_hand, abs=1e-6)
    assert attention_rows.jacobian_norm(torch.tensor([1 - 1e-6, 1e-6])) == pytest.approx(2e-6, rel=0.05)
    assert attention_rows.saturated(p).tolist() == [False, False, True, True]
    entropy = attention_rows.normalised_entropy(p, torch.tensor([3, 3, 3, 3])) * math.log(3)
    assert entropy[:3].tolist() == pytest.approx([1.5 * math.log(2), math.log(3), 0.0], abs=1e-6)


def test_a_batch_that_is_padded_or_packed_equals_its_documents_alone():
    model = parts.model("llama_tiny", scale=8)
    ids, lengths = torch.randint(31, (2, 12)), [7, 5]
    alone = [health(model, {"ids": ids[i : i + 1, :n]}, gradients=False) for i, n in enumerate(lengths)]
    padded = health(model, {"ids": ids, "pos": parts.padded([7, 5], "right")} | {"ids": ids[:, :7]}, gradients=False)
    joined = torch.cat([ids[0, :7], ids[1, :5], ids[0, :2]])[None]
    packed_row = health(model, {"ids": joined, "pos": packed([7, 5], 14)[None]}, gradients=False)
    for layer, (first, second) in enumerate(zip(*alone, strict=True)):
        for name in ("relative_residual", "token_cosine", "effective_rank", "dirichlet_energy"):
            expected = (getattr(first, name) + getattr(second, name)) / 2
            assert getattr(padded[layer], name) == pytest.approx(expected, rel=1e-4), name
            assert getattr(packed_row[layer], name) == pytest.approx(expected, rel=1e-4), name
        for one in (padded[layer], packed_row[layer]):
            assert one.max_logit == pytest.approx(max(first.max_logit, second.max_logit), rel=1e-4)
            # rows that see 5 keys or more: 3 of the first document, 1 of the second
            assert one.entropy == pytest.approx((3 * first.entropy + second.entropy) / 4, rel=1e-4)


@pytest.mark.parametrize("preset", ["llama_tiny", "encdec_tiny"])
def test_the_result_does_not_depend_on_the_chunk(preset):
    model = parts.model(preset, scale=4)
    batch = batch_of(model, rows=5)
    batch["pos"] = parts.padded([12, 3, 9, 2, 12], "right")
    one, two = (health(model, batch, chunk=n) for n in (1, 5))
    for a, b in zip(one, two, strict=True):
        assert a.values() == pytest.approx(b.values(), rel=1e-4)


def test_gradients_are_those_of_backward():
    model = parts.model("gpt_tiny", "model/init=sigma_reparam")
    batch = batch_of(model)
    found = health(model, batch)
    loss = nn.functional.cross_entropy(model(batch["ids"]).flatten(0, 1), batch["targets"].flatten())
    loss.backward()
    for i, one in enumerate(found):
        projection = model.layers[i].attention.projection
        for name, value in one.gradients.items():
            p = getattr(projection, name).parametrizations.weight.original
            assert value == pytest.approx(float(p.grad.norm()), rel=1e-4)


def test_tokens_collapse_without_residuals_until_the_floor_of_float32():
    sizes = ["model.n_layers=6", "model.d_model=32", "model/mask=full", "model/init=unit_variance"]
    bare = ["model.layer.attention_residual=0", "model.layer.ffn_residual=0"]
    torch.manual_seed(0)
    batch, courses = {"ids": torch.randint(31, (4, 16))}, []
    for more in ([], bare):
        model = build(parts.node("gpt_tiny", *sizes, *more))
        courses.append([one.relative_residual for one in health(model, batch, gradients=False)])
    healthy, falling = courses
    assert min(healthy) > 0.5
    assert all(a > b or b < 1e-5 for a, b in itertools.pairwise(falling))
    assert falling[-1] < 1e-4


def layer(**values):
    return LayerHealth("self", 5, "layer 5", **values)


def test_a_line_comes_once_until_the_layer_recovers():
    alarms = Alarms()
    assert alarms([layer(relative_residual=0.5)]) == []
    assert alarms([layer(relative_residual=2e-5)]) == ["layer 5: all tokens look alike: relative residual 2e-5"]
    assert alarms([layer(relative_residual=1e-5)]) == []
    resumed = Alarms()
    resumed.load_state_dict(alarms.state_dict())
    assert resumed([layer(relative_residual=1e-5)]) == []
    assert alarms([layer(relative_residual=0.3)]) == []
    assert len(alarms([layer(relative_residual=1e-5)])) == 1


def test_scores_that_explode_are_a_fault_only_while_the_loss_is_flat():
    def lines(*course):
        alarms = Alarms()
        return [len(alarms([layer(max_logit=logit)], loss)) for logit, loss in course]

    assert lines((6, 4.0), (290, 3.0), (800, 3.0), (1500, 3.0)) == [0, 0, 1, 0]
    assert lines((6, 4.0), (290, 3.0), (800, 2.0), (1500, 1.0)) == [0, 0, 0, 0], "it learns"
    assert lines((6, 3.0), (60, 3.0), (150, 3.0)) == [0, 0, 0], "they are small"
    assert lines((500, 3.0), (400, 3.0), (300, 3.0)) == [0, 0, 0], "they fall"
    assert lines((6, 3.0), (290, 3.0), (100, 3.0), (400, 3.0)) == [0, 1, 0, 1], "it had recovered"


def test_heads_that_are_copies_are_told_when_they_stay_so():
    alike, apart = layer(head_divergence=0.0), layer(head_divergence=1e-4)
    alarms = Alarms()
    assert alarms([alike]) == [], "a start with one matrix of zeros is no fault"
    resumed = Alarms()
    resumed.load_state_dict(alarms.state_dict())
    told = ["layer 5: all heads do the same: their patterns differ by 0 bits"]
    assert resumed([alike]) == alarms([alike]) == told
    assert [alarms([one]) for one in (alike, apart, alike, alike)] == [[], [], [], told]
    assert Alarms()([layer(head_divergence=None)]) == []
    begun_before = {key: value for key, value in resumed.state_dict().items() if key != "copies"}
    resumed.load_state_dict(begun_before)
    assert resumed([apart]) == []


@pytest.mark.parametrize(
    "start", [["model/layer=post_norm"], ["model/init=zero_q"]], ids=["norm after", "zero queries"]
)
def test_heads_that_only_begin_to_differ_do_not_ring(start):
    """Small weights behind a stream that no norm has touched, and one matrix of zeros: the smallest healthy starts."""
    model = build(
        parts.node("gpt_tiny", "model.d_model=16", "model.attention.n_heads=2", "model/position=rope", *start)
    )
    batch, alarms, optimizer = batch_of(model), Alarms(), torch.optim.Adam(model.parameters(), lr=1e-5)
    for _ in range(3):
        assert alarms(health(model, batch, gradients=False)) == []
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch["ids"]).flatten(0, 1), batch["targets"].flatten()).backward()
        optimizer.step()


def test_how_far_heads_differ_by_hand():
    p, q = torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.25, 0.75, 0.0, 0.0]]), torch.eye(4)[2:]
    both = torch.stack([p, q])
    assert attention_rows.head_divergence(both).tolist() == pytest.approx([1.0, 1.0]), "two that share no key"
    assert attention_rows.head_divergence(torch.stack([p, p, p])).tolist() == [0.0, 0.0]
    near = torch.stack([p[0], p[1]])
    by_hand = scipy.spatial.distance.jensenshannon(p[0], p[1], base=2) ** 2
    assert float(attention_rows.head_divergence(near)) == pytest.approx(by_hand, rel=1e-5)


@pytest.mark.parametrize("init", [[], ["model/init=identical_heads"]], ids=["usual", "identical heads"])
@pytest.mark.parametrize("preset", ["gpt_tiny", "llama_tiny", "bert_tiny", "t5_tiny"])
def test_only_heads_that_start_as_copies_ring(preset, init):
    model = build(parts.node(preset, *init))
    alarms, batch = Alarms(), batch_of(model)
    lines = [line for _ in range(2) for line in alarms(health(model, batch, gradients=False))]
    assert any("all heads do the same" in line for line in lines) == bool(init)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"token_cosine": 0.995}, "point the same way"),
        ({"saturated_share": 0.61}, "61% of the rows"),
        ({"entropy": 0.003}, "entropy 3e-3"),
        ({"gradients": {"w_q": 0.0, "w_k": 0.0, "w_v": 0.1, "w_o": 1.0}}, "gradient of w_q 0 and w_k 0, of w_v 0.1"),
    ],
)
def test_each_threshold_has_its_words(values, words):
    (line,) = Alarms()([layer(**values)])
    assert line.startswith("layer 5: ")
    assert words in line
    assert Alarms()([layer(token_cosine=0.98, saturated_share=0.5, entropy=0.05, gradients={"w_v": 1.0})]) == []


def test_short_numbers():
    assert [short(x) for x in (2e-5, 0.0083, 0.43, 0.0, 12.0)] == ["2e-5", "8e-3", "0.43", "0", "12"]


def test_zero_queries_and_keys_get_no_gradient():
    model = parts.model("gpt_tiny", "model/init=zero_qk")
    with torch.no_grad():
        for one in model.layers:
            one.attention.projection.w_q.weight.zero_()
            one.attention.projection.w_k.weight.zero_()
    lines = Alarms()(health(model, batch_of(model)))
    assert [line for line in lines if "learns nothing about where to look" in line] != []
    with Tap(model, at="layers.0.attention.weights") as tap:
        model(torch.randint(31, (1, 4)))
    assert tap["layers.0.attention.weights"][0, 0, 3].tolist() == pytest.approx([0.25] * 4)
