"""Examples worked by hand in the texts about Q, K and V, to their printed digits, and what the known mistakes do to them."""

import math

import parts
import pytest
import torch
from torch import nn

from minitf.blocks.attend.reference import attend_reference
from minitf.blocks.attend.sdpa import attend_sdpa
from minitf.blocks.mask import Mask
from minitf.blocks.mask.causal import Causal
from minitf.blocks.mask.full import Full
from minitf.blocks.normalize import Normalize, hide
from minitf.blocks.normalize.softmax import Softmax
from minitf.blocks.score.dot import Dot
from minitf.blocks.score.scaled_dot import ScaledDot
from minitf.tap import Tap

PRONOUN = [[1, 1, 0, 0]], [[2, 2, 0, 0], [1, 0, 1, 0], [0, 0, 1, 1]]  # 它; 猫 and two more
THREE = [[1, 0], [0, 1], [1, 1]]
EYE = [[1, 0], [0, 1]]


def read(q, k, v, mask=None, scale=None, normalize=Softmax, bias=None, k_order=None):
    """Output, weights and raw scores of one head; the fast path must agree."""
    q, k, v = (torch.as_tensor(t, dtype=torch.float32)[None, None] for t in (q, k, v))
    score = ScaledDot(d_head=q.size(-1), n_heads=1)
    score.scale = score.scale if scale is None else scale
    seen = {}
    where = {
        "mask": mask or Full(),
        "q_pos": torch.arange(q.size(2))[None] + k.size(2) - q.size(2),
        "k_pos": (torch.arange(k.size(2)) if k_order is None else k_order)[None],
        "bias": bias,
    }
    out, weights = attend_reference(
        q, k, v, score=score, normalize=normalize(n_heads=1), **where, tap=lambda name, x: seen.setdefault(name, x)
    )
    if normalize is Softmax:
        fast = attend_sdpa(q, k, v, scale=score.scale, plain=k_order is None, **where)
        torch.testing.assert_close(fast, out, atol=1e-5, rtol=0)
    return out[0, 0], weights[0, 0], seen["scores"][0, 0]


def assert_digits(actual, expected, digits):
    torch.testing.assert_close(actual, torch.tensor(expected), atol=0.5001 * 10**-digits, rtol=0)


def steepness(weights):
    """Size of softmax's Jacobian at these weights."""
    return (weights.diag() - weights[:, None] * weights).norm()


# --- the examples ---


def test_three_tokens():
    raw = read(THREE, THREE, THREE, scale=1.0)[2]
    assert raw.tolist() == [[1, 0, 1], [0, 1, 1], [1, 1, 2]]
    out, weights, scores = read(THREE, THREE, THREE)
    assert_digits(scores, [[0.707, 0, 0.707], [0, 0.707, 0.707], [0.707, 0.707, 1.414]], 3)
    assert_digits(scores.exp(), [[2.028, 1, 2.028], [1, 2.028, 2.028], [2.028, 2.028, 4.113]], 3)
    assert_digits(scores.exp().sum(-1), [5.056, 5.056, 8.169], 3)
    assert_digits(weights, [[0.401, 0.198, 0.401], [0.198, 0.401, 0.401], [0.248, 0.248, 0.503]], 3)
    # the text prints .751, from weights that were rounded before
    assert_digits(out, [[0.802, 0.599], [0.599, 0.802], [0.7517, 0.7517]], 3)
    assert_digits(out[2], [0.7517, 0.7517], 4)


def test_reading_brings_three_tokens_nearer_to_each_other():
    out = read(THREE, THREE, THREE)[0]
    assert_digits(torch.pdist(torch.tensor(THREE).float()), [1.414, 1.0, 1.0], 3)
    assert_digits(torch.pdist(out), [0.288, 0.161, 0.161], 3)
    assert out[0].argmax() == 0  # what each token was is still to be seen
    assert out[1].argmax() == 1


def test_with_projections_a_token_need_not_read_itself_most():
    x = torch.tensor(THREE).float()
    elsewhere = 0
    for _ in range(20):
        w_q, w_k = torch.randn(2, 2, 2)
        elsewhere += int((read(x @ w_q, x @ w_k, x)[1].argmax(-1) != torch.arange(3)).any())
    assert elsewhere > 10


def test_without_projections_the_diagonal_is_largest_only_in_wide_heads():
    """Gaussian rows of 16 tokens: the share that fits itself best; for vectors of one length it is always itself."""
    share = {}
    for d in (2, 8, 64):
        x = torch.randn(2000, 1, 16, d)
        share[d] = (ScaledDot(d_head=d, n_heads=1)(x, x).argmax(-1) == torch.arange(16)).float().mean().item()
        x = x / x.norm(dim=-1, keepdim=True)
        assert (ScaledDot(d_head=d, n_heads=1)(x, x).argmax(-1) == torch.arange(16)).all()
    assert share == {
        2: pytest.approx(0.28, abs=0.015),
        8: pytest.approx(0.87, abs=0.015),
        64: pytest.approx(1.0, abs=0.005),
    }


def test_pronoun():
    """它 reads 猫: three keys with scores 4, 1 and 0 for a head of width 4."""
    out, weights, scores = read(*PRONOUN, torch.eye(3))
    assert_digits(scores, [[2.0, 0.5, 0.0]], 6)
    assert_digits(scores.exp(), [[7.389, 1.649, 1.000]], 3)
    assert_digits(scores.exp().sum(-1), [10.038], 3)
    assert_digits(weights, [[0.7361, 0.1643, 0.0996]], 4)
    assert_digits(weights, [[0.736, 0.164, 0.100]], 3)
    assert_digits(weights[:, :2], [[0.74, 0.16]], 2)
    assert torch.equal(out, weights)  # values that are one-hot places show the weights


def test_two_tokens_and_only_v_changed():
    out, weights, scores = read(EYE, EYE, [[2, 0], [0, 4]], mask=Causal())
    assert_digits(weights, [[1.0, 0.0], [0.3302, 0.6698]], 4)
    assert_digits(out, [[2.0, 0.0], [0.6605, 2.6790]], 4)
    other, same_weights, same_scores = read(EYE, EYE, [[2, 0], [10, 10]], mask=Causal())
    assert torch.equal(weights, same_weights)
    assert torch.equal(scores, same_scores)
    assert torch.equal(out[0], other[0])
    assert_digits(other[1], [0.3302 * 2 + 6.698, 6.698], 3)


def test_minimal_module():
    """One head of width 8 over 5 tokens: three matrices, a softmax and a sum."""
    torch.manual_seed(42)
    w_q, w_k, w_v = (nn.Linear(8, 8, bias=False) for _ in range(3))
    x = torch.randn(1, 5, 8)
    alpha = (w_q(x) @ w_k(x).transpose(-2, -1) / math.sqrt(8)).softmax(-1)
    assert alpha.shape == (1, 5, 5)
    torch.testing.assert_close(alpha.sum(-1), torch.ones(1, 5), atol=1e-6, rtol=0)
    block = parts.attention("model.attention.n_heads=1", "model/mask=full", d_model=8)
    with torch.no_grad():
        for ours, theirs in zip(("w_q", "w_k", "w_v"), (w_q, w_k, w_v), strict=True):
            getattr(block.projection, ours).weight.copy_(theirs.weight)
        block.projection.w_o.weight.copy_(torch.eye(8))
    with Tap(block, at=["weights"]) as tap:
        torch.testing.assert_close(parts.attend(block, x), alpha @ w_v(x), atol=1e-6, rtol=0)
    torch.testing.assert_close(tap["weights"][:, 0], alpha, atol=1e-6, rtol=0)


def test_products_have_the_variance_d_and_scaled_ones_1():
    for d in (8, 16, 64, 128, 256):
        q, k = torch.randn(20, 1, 400, d), torch.randn(20, 1, 400, d)
        assert 0.97 < ScaledDot(d_head=d, n_heads=1)(q, k).var() < 1.03
        assert 0.97 < (q @ k.mT).var() / d < 1.03
    assert_digits(torch.tensor([64.0, 128.0]).sqrt(), [8.0, 11.3], 1)


def test_a_low_temperature_is_the_largest_key_not_the_equal_one():
    """Key [1, 1] beats the key that equals the query, because it is longer."""
    weights = read([[1, 0]], [[1, 0], [1, 1], [2, 1]], torch.eye(3), scale=1.0)[1]
    assert_digits(weights, [[0.212, 0.212, 0.576]], 3)
    assert_digits(read([[1, 0]], [[1, 0], [1, 1], [2, 1]], torch.eye(3), scale=100.0)[1], [[0.0, 0.0, 1.0]], 6)


# --- shapes ---


def test_shapes_of_eight_tokens_and_eight_heads():
    block = parts.attention("model.attention.n_heads=8", "model/mask=full", d_model=64)
    with Tap(block, at=["q", "k", "v", "scores", "weights", "heads"]) as tap:
        out = parts.attend(block, torch.randn(1, 8, 64))
    shapes = {name: tuple(tensor.shape) for name, tensor in tap.values.items()}
    assert shapes == dict.fromkeys(["q", "k", "v", "scores", "weights", "heads"], (1, 8, 8, 8))
    assert out.shape == (1, 8, 64)
    assert block.projection.w_o.weight.shape == block.projection.w_q.weight.shape == (64, 64)


def test_a_batch_is_its_rows_one_by_one():
    block = parts.attention("model.attention.n_heads=2", "model/mask=full")
    x = torch.randn(3, 5, 16)
    torch.testing.assert_close(parts.attend(block, x), torch.cat([parts.attend(block, row[None]) for row in x]))


def test_cross_attention_is_not_square_and_values_choose_the_width():
    q, k, v = torch.randn(4, 6), torch.randn(7, 6), torch.randn(7, 3)
    out, weights, _ = read(q, k, v)
    assert weights.shape == (4, 7)
    assert out.shape == (4, 3)


def test_few_keys_bound_the_rank_of_the_output():
    """Six queries on two keys: no six independent outputs, so attention is not onto."""
    out = read(torch.randn(6, 8), torch.randn(2, 8), torch.randn(2, 8))[0]
    assert torch.linalg.matrix_rank(out, rtol=1e-4) == 2
    assert torch.linalg.matrix_rank(read(*torch.randn(3, 6, 8))[0], rtol=1e-4) == 6


# --- laws ---


def test_a_mask_may_be_added_to_the_scores():
    q, k, v = torch.randn(3, 5, 4)
    added = torch.zeros(5, 5).masked_fill(torch.ones(5, 5).triu(1).bool(), float("-inf"))[None, None]
    for ours, added_one in zip(read(q, k, v, mask=Causal()), read(q, k, v, bias=added), strict=True):
        torch.testing.assert_close(ours.tril(), added_one.tril(), atol=1e-6, rtol=0)
    assert not read(q, k, v, bias=added)[1].triu(1).any()


def test_a_first_token_is_certain_because_it_has_no_choice():
    for _ in range(3):
        weights = read(*torch.randn(3, 4, 4), mask=Causal())[1]
        assert weights[0].tolist() == [1, 0, 0, 0]
        entropy = -torch.special.xlogy(weights, weights).sum(-1)
        assert (entropy <= torch.arange(1, 5).log() + 1e-6).all()  # at most log(number allowed), which is 0 for one


def test_queries_do_not_see_each_other():
    q, k, v = torch.randn(3, 5, 4)
    out, changed = read(q, k, v)[0], read(q.index_fill(0, torch.tensor([2]), 3.0), k, v)[0]
    assert torch.equal(out[[0, 1, 3, 4]], changed[[0, 1, 3, 4]])
    assert not torch.allclose(out[2], changed[2])


def test_keys_and_values_may_change_places_together():
    q, k, v = torch.randn(3, 5, 4)
    order = torch.tensor([3, 1, 4, 0, 2])
    out = read(q, k, v)[0]
    torch.testing.assert_close(read(q, k[order], v[order])[0], out)
    assert not torch.allclose(read(q, k[order], v)[0], out, atol=0.1)
    # where places matter, they must move along
    out = read(q, k, v, mask=Causal())[0]
    assert not torch.allclose(read(q, k[order], v[order], mask=Causal())[0], out, atol=0.1)
    torch.testing.assert_close(read(q, k[order], v[order], mask=Causal(), k_order=order)[0], out)


def test_attention_alone_does_not_know_order():
    """猫追球 and 球追猫: each word reads the same, unless a mask tells before from after."""
    x, back = torch.randn(3, 8), torch.tensor([2, 1, 0])
    torch.testing.assert_close(read(x[back], x[back], x[back])[0], read(x, x, x)[0][back])
    one, other = (read(t, t, t, mask=Causal())[0] for t in (x, x[back]))
    assert not torch.allclose(other, one[back], atol=0.1)


def test_zero_queries_read_the_mean_and_large_ones_a_single_key():
    k, v = torch.randn(2, 5, 4)
    out, weights, _ = read(torch.zeros(3, 4), k, v)
    torch.testing.assert_close(weights, torch.full((3, 5), 1 / 5))
    torch.testing.assert_close(out, v.mean(0).expand(3, 4))
    q = torch.randn(3, 4)
    sharp = read(100 * q, k, v)[1]
    assert sharp.amax(-1).min() > 0.99
    assert steepness(sharp[0]) < 0.05 * steepness(read(q, k, v)[1][0])


@pytest.mark.parametrize(("zero", "stays"), [(["w_q", "w_k"], True), (["w_q"], False), (["w_k"], False)])
def test_zero_matrices_stay_zero_only_if_both_are(zero, stays):
    block, x = parts.attention("model/mask=full"), torch.randn(1, 5, 16)
    for name in zero:
        nn.init.zeros_(getattr(block.projection, name).weight)
    parts.attend(block, x).square().sum().backward()
    moved = [bool(getattr(block.projection, name).weight.grad.any()) for name in zero]
    assert moved == ([False, False] if stays else [True])


def test_the_maximum_is_taken_off_before_exp():
    assert torch.tensor([11.0, 11.1]).half().exp().isinf().tolist() == [False, True]
    assert torch.tensor([88.7, 88.8]).exp().isinf().tolist() == [False, True]
    for size, dtype in ((11.1, torch.half), (88.8, torch.float32), (1e4, torch.half), (1e30, torch.float32)):
        scores = torch.tensor([[[[size, size, -size]]]], dtype=dtype)
        assert Softmax(n_heads=1)(scores, torch.ones(1, 3).bool()).tolist() == [[[[0.5, 0.5, 0.0]]]]


# --- mistakes ---


def test_mistake_no_scale():
    """Breaks: scores of variance 1. The pronoun's weights become sharper, and the slope 3.2 times smaller."""
    weights, unscaled = read(*PRONOUN, torch.eye(3))[1], read(*PRONOUN, torch.eye(3), scale=1.0)[1]
    assert_digits(unscaled, [[0.9362, 0.0466, 0.0171]], 4)
    assert_digits(unscaled, [[0.936, 0.047, 0.017]], 3)
    assert_digits(torch.stack([steepness(weights[0]), steepness(unscaled[0])]), [0.324, 0.101], 3)
    q, k = torch.randn(2, 1, 1, 400, 64)
    assert Dot(d_head=64, n_heads=1)(q, k).var() > 50


def test_mistake_softmax_over_the_queries():
    """Breaks: rows are distributions, and independent of each other."""

    class QueryAxis(Normalize):
        def forward(self, scores, visible):
            return hide(scores, visible).softmax(-2)

    weights = read(THREE, THREE, THREE, normalize=QueryAxis)[1]
    assert_digits(weights.sum(-1), [0.847, 0.847, 1.306], 3)  # 2.028/5.056 + 1/5.056 + 2.028/8.169, ...
    changed = read([[1, 0], [0, 1], [5, 5]], THREE, THREE, normalize=QueryAxis)[1]
    assert not torch.allclose(weights[:2], changed[:2], atol=0.01)


class Inverted(Mask):
    """Later tokens only."""

    def rule(self, q_off, k_off):
        return k_off > q_off


class TrueMeansHidden(Softmax):
    """A mask of the other convention, in which True = fill in -inf."""

    def forward(self, scores, visible):
        return super().forward(scores, ~visible)


@pytest.mark.parametrize("mistake", [{"mask": Inverted()}, {"mask": Causal(), "normalize": TrueMeansHidden}])
def test_mistake_mask_or_its_convention_turned_round(mistake):
    """Breaks: hidden weights are 0, and nothing later reaches an output. The last token reads nothing at all."""
    k, v = torch.randn(2, 4, 4)
    for how, breaks in (({"mask": Causal()}, False), (mistake, True)):
        later = v.clone()
        later[2:] += 1
        out, weights, _ = read(k, k, v, **how)
        assert weights.triu(1).any() == breaks
        assert (not torch.equal(out[:2], read(k, k, later, **how)[0][:2])) == breaks
        assert bool(weights[-1].any()) != breaks


def test_mistake_dropout_not_on_the_weights():
    """Dropping weights keeps a row's sum in the mean only; where scores are dropped the rows still sum to 1."""
    p, x = 0.1, torch.randn(1, 1, 16, 8)
    pos = torch.arange(16)[None]
    where = {"score": ScaledDot(d_head=8, n_heads=1), "normalize": Softmax(n_heads=1), "mask": Full()}
    x_long = x.expand(1000, 1, 16, 8)
    dropped, weights = attend_reference(
        x_long, x_long, torch.eye(16).expand(1000, 1, 16, 16), **where, q_pos=pos, k_pos=pos, dropout=p
    )
    kept = dropped != 0
    assert abs(kept.float().mean() - (1 - p)) < 0.01
    torch.testing.assert_close(dropped[kept], weights[kept] / (1 - p))
    sums = dropped.sum(-1)
    torch.testing.assert_close(sums.mean(0), torch.ones(1, 16), atol=0.05, rtol=0)
    expected = (weights[0].square().sum(-1) * p / (1 - p)).sqrt()
    torch.testing.assert_close(sums.std(0), expected, atol=0, rtol=0.15)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1000, 1, 16))  # seen before dropout
    on_scores = nn.functional.dropout(where["score"](x, x), p).softmax(-1)
    torch.testing.assert_close(on_scores.sum(-1), torch.ones(1, 1, 16))
