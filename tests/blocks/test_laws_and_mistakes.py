"""What one head obeys, whatever its numbers, and which law or number each known mistake breaks."""

import parts
import pytest
import torch
from one_head import PRONOUN, THREE, assert_digits, read, steepness
from torch import nn

from minitf.blocks.attend.reference import attend_reference
from minitf.blocks.mask import Mask
from minitf.blocks.mask.causal import Causal
from minitf.blocks.mask.full import Full
from minitf.blocks.normalize import Normalize, hide
from minitf.blocks.normalize.softmax import Softmax
from minitf.blocks.score.dot import Dot
from minitf.blocks.score.scaled_dot import ScaledDot


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
        assert_digits(Softmax(n_heads=1)(scores, torch.ones(1, 3).bool()), [[[[0.5, 0.5, 0.0]]]], 6)


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
