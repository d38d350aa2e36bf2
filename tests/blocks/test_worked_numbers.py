"""Examples worked by hand in the texts about Q, K and V, to their printed digits."""

import math

import parts
import pytest
import torch
from one_head import EYE, PRONOUN, THREE, assert_digits, read
from torch import nn

from minitf.blocks.mask.causal import Causal
from minitf.blocks.score.scaled_dot import ScaledDot
from minitf.tap import Tap


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
        scores = ScaledDot(d_head=d, n_heads=1)(x, x)
        assert (scores.diagonal(dim1=-2, dim2=-1) >= scores.amax(-1) - 1e-6).all()
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
