"""Normalisers: each keeps the laws that it states, breaks the others, and is its formula."""

import parts
import pytest
import torch

from minitf.blocks.normalize import Normalize, hide
from minitf.blocks.normalize.off_by_one import OffByOne
from minitf.blocks.normalize.softmax import Softmax
from minitf.blocks.normalize.sparsemax import Sparsemax
from minitf.config import build

EVERY_NORMALIZER = parts.options("model/attention/normalize")


def normalizer(name, dtype=torch.float32):
    """One normaliser for 3 heads, its parameters random."""
    made = build(parts.node("gpt_tiny", f"model/attention/normalize={name}").attention.normalize)(n_heads=3).to(dtype)
    with torch.no_grad():
        for p in made.parameters():
            p.copy_(torch.randn_like(p))
    return made


def some_mask(t=6):
    visible = torch.ones(t, t).tril().bool()
    visible[2] = False  # a row that may read nothing
    return visible


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("size", [1.0, 1e4])
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("name", EVERY_NORMALIZER)
def test_hidden_weights_are_exactly_zero(name, size, dtype):
    scores = (torch.randn(2, 3, 6, 6) * size).to(dtype).requires_grad_()
    visible, made = some_mask(), normalizer(name, dtype)
    weights = made(scores, visible)
    assert weights.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert not weights[..., ~visible].any()
    with torch.autograd.detect_anomaly(check_nan=True):
        (1e3 * weights * torch.randn_like(weights)).sum().backward()
    assert all(t.grad.isfinite().all() for t in (scores, *made.parameters()))
    assert not scores.grad[..., ~visible].any()


@pytest.mark.parametrize("name", EVERY_NORMALIZER)
def test_a_float_mask_is_refused(name):
    with pytest.raises(TypeError, match="True = may be read"):
        normalizer(name)(torch.zeros(1, 3, 2, 2), torch.zeros(2, 2))


@pytest.mark.parametrize("name", EVERY_NORMALIZER)
def test_an_edge_cut_by_minus_infinity_is_hidden_too(name):
    """Editing a score to -inf takes the edge away, also the last one of a row."""
    scores, visible = torch.randn(2, 3, 6, 6), some_mask()
    cut = visible & (torch.rand(6, 6) > 0.4)
    cut[4] = False
    edited = scores.masked_fill(~cut, float("-inf")).requires_grad_()
    made = normalizer(name)
    weights = made(edited, visible)
    assert torch.equal(weights, made(scores, cut))
    weights.square().sum().backward()
    assert edited.grad.isfinite().all()


# --- laws ---


def is_distribution(made):
    """Rows that may read something have weights of at least 0 that sum to 1."""
    visible = some_mask()
    for size in (0.1, 10.0, 1e4):
        weights = made(size * torch.randn(2, 3, 6, 6), visible)
        if (weights < 0).any() or not torch.allclose(weights.sum(-1), visible.any(-1).float(), atol=1e-6):
            return False
    return True


def permutes(made):
    """Keys in another order have their weights in that order."""
    scores, visible, order = torch.randn(2, 3, 6, 6), some_mask(), torch.randperm(6)
    return torch.allclose(made(scores, visible)[..., order], made(scores[..., order], visible[:, order]), atol=1e-6)


def rows_are_independent(made):
    """Other scores in one row of one head leave every other row as it is."""
    scores, visible = torch.randn(2, 3, 6, 6), some_mask()
    changed = scores.clone()
    changed[1, 2, 4] = 3 * torch.randn(6)
    before, after = made(scores, visible), made(changed, visible)
    others = torch.ones(2, 3, 6).bool()
    others[1, 2, 4] = False
    assert not torch.allclose(before[~others], after[~others])
    return torch.equal(before[others], after[others])


LAWS = {"distribution": is_distribution, "permutation": permutes, "row_independence": rows_are_independent}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", EVERY_NORMALIZER)
def test_a_normaliser_keeps_the_laws_that_it_states_and_no_other(name, law):
    made = normalizer(name)
    assert made.invariants <= set(LAWS)
    assert LAWS[law](made) == (law in made.invariants)


def test_the_laws_notice_what_breaks_them():
    class QueryAxis(Normalize):
        """A known mistake: softmax over the queries."""

        def forward(self, scores, visible):
            return hide(scores, visible).softmax(-2).nan_to_num()

    class FirstComeFirstServed(Normalize):
        """Each key takes its share of what the keys before it left."""

        def forward(self, scores, visible):
            share = hide(scores, visible).sigmoid()
            left = (1 - share).cumprod(-1)
            return share * torch.cat([torch.ones_like(left[..., :1]), left[..., :-1]], -1)

    kept = {
        made: {law for law, holds in LAWS.items() if holds(made(n_heads=3))}
        for made in (QueryAxis, FirstComeFirstServed)
    }
    assert kept[QueryAxis] == {"permutation"}
    assert kept[FirstComeFirstServed] == {"row_independence"}


# --- formulas ---


def masked_scores(size=2.0):
    """Scores in float64 and a mask that leaves every row something."""
    scores = size * torch.randn(2, 3, 5, 7, dtype=torch.float64)
    return scores.requires_grad_(), (torch.rand(2, 1, 5, 7) > 0.4).index_fill(-1, torch.tensor([0]), True)


def one_more_key(extra):
    """Softmax with one more key that has the score `extra` and is never read."""

    def weights(scores, visible):
        scores = scores.masked_fill(~visible, float("-inf"))
        return torch.cat([scores, extra.expand(*scores.shape[:-1], 1)], -1).softmax(-1)[..., :-1]

    return weights


def bisected(power):
    """max(score * (power > 1 ? 1/2 : 1) - t, 0)^power, with t found by halving an interval."""

    def weights(scores, visible):
        x = (scores.detach() / power).masked_fill(~visible, float("-inf"))
        high = x.amax(-1, keepdim=True)
        low = high - 1
        for _ in range(60):
            middle = (low + high) / 2
            too_low = (x - middle).clamp_min(0).pow(power).sum(-1, keepdim=True) >= 1
            low, high = torch.where(too_low, middle, low), torch.where(too_low, high, middle)
        return (x - low).clamp_min(0).pow(power)

    return weights


def test_softmax_is_torchs_softmax():
    scores, visible = masked_scores()
    expected = scores.masked_fill(~visible, float("-inf")).softmax(-1)
    assert_same(Softmax(n_heads=3)(scores, visible), expected, [scores])


def assert_same(ours, expected, inputs):
    """Equal, and so are the gradients of a weighted sum."""
    torch.testing.assert_close(ours, expected)
    there = torch.randn_like(ours)
    grads = [torch.autograd.grad((w * there).sum(), inputs) for w in (ours, expected)]
    torch.testing.assert_close(*grads)


def test_off_by_one_and_sink_are_softmax_with_one_more_key():
    scores, visible = masked_scores()
    expected = one_more_key(torch.zeros(1, dtype=torch.float64))(scores, visible)
    assert_same(OffByOne(n_heads=3)(scores, visible), expected, [scores])
    sink = normalizer("sink", torch.float64)
    expected = one_more_key(sink.logit[:, None, None])(scores, visible)
    assert_same(sink(scores, visible), expected, [scores, sink.logit])
    sink.reset_parameters()
    assert torch.equal(sink(scores, visible), OffByOne(n_heads=3)(scores, visible))


@pytest.mark.parametrize("b", [-1e4, 1e4])
def test_an_extreme_sink_reads_all_or_nothing(b):
    sink, scores = normalizer("sink"), torch.randn(1, 3, 4, 4, requires_grad=True)
    torch.nn.init.constant_(sink.logit, b)
    weights = sink(scores, torch.ones(4, 4).bool())
    torch.testing.assert_close(weights, scores.softmax(-1) if b < 0 else torch.zeros(1, 3, 4, 4))
    weights.square().sum().backward()
    assert scores.grad.isfinite().all()
    assert sink.logit.grad.isfinite().all()


def test_sigmoid_judges_every_key_alone():
    scores, visible = masked_scores()
    n = visible.sum(-1, keepdim=True)
    ours = normalizer("sigmoid")(scores, visible)
    assert_same(ours, visible / (1 + n * (-scores).exp()), [scores])
    even = normalizer("sigmoid")(torch.zeros(1, 1, 1, 1000), torch.ones(1, 1000).bool())
    torch.testing.assert_close(even.sum(), torch.tensor(1.0), atol=2e-3, rtol=0)


@pytest.mark.parametrize(("name", "power"), [("sparsemax", 1), ("entmax15", 2)])
@pytest.mark.parametrize("size", [1e-3, 0.3, 2.0, 1e3])
def test_sparse_normalisers_are_their_thresholds(name, power, size):
    scores, visible = masked_scores(size)
    torch.testing.assert_close(normalizer(name)(scores, visible), bisected(power)(scores, visible), atol=1e-9, rtol=0)
    tied = scores.detach().round()
    torch.testing.assert_close(normalizer(name)(tied, visible), bisected(power)(tied, visible), atol=1e-9, rtol=0)


@pytest.mark.parametrize("name", EVERY_NORMALIZER)
def test_gradients_are_slopes(name):
    scores, visible = masked_scores(1.0)
    made = normalizer(name, torch.float64)
    assert torch.autograd.gradcheck(lambda s, *_: made(s, visible), (scores, *made.parameters()))


def test_sparsemax_is_the_nearest_distribution():
    scores = torch.randn(3, 6, dtype=torch.float64)
    nearest = Sparsemax(n_heads=1)(scores, torch.ones(3, 6).bool())
    others = torch.distributions.Dirichlet(torch.full((6,), 0.5, dtype=torch.float64)).sample((5000, 3))
    others = torch.cat([others, torch.eye(6, dtype=torch.float64)[:, None].expand(6, 3, 6), nearest.roll(1, -1)[None]])
    ours = (nearest - scores).norm(dim=-1)
    assert ((others - scores).norm(dim=-1) >= ours).all()
    # the condition of an optimum: no direction inside the simplex leads nearer
    slope = ((others - nearest) * (scores - nearest)).sum(-1)
    assert (slope <= 1e-12).all()


def test_sparse_normalisers_switch_keys_off_and_softmax_does_not():
    scores, visible = torch.randn(1, 3, 8, 32), torch.ones(8, 32).bool()
    share = {name: (normalizer(name)(scores, visible) > 0).float().mean().item() for name in EVERY_NORMALIZER}
    assert share["sparsemax"] < share["entmax15"] < 0.6
    assert all(value == 1 for name, value in share.items() if name not in ("sparsemax", "entmax15"))


@pytest.mark.parametrize("name", ["sparsemax", "entmax15"])
def test_long_rows_keep_their_sum_in_float32(name):
    for size in (0.01, 0.1, 1.0):
        weights = normalizer(name)(size * torch.randn(1, 3, 2, 8192), torch.ones(2, 8192).bool())
        torch.testing.assert_close(weights.sum(-1), torch.ones(1, 3, 2), atol=2e-6, rtol=0)
