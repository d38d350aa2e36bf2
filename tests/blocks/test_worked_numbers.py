"""Examples worked by hand in the texts about Q, K and V, to their printed digits."""

import torch

from minitf.blocks.attend.reference import attend_reference
from minitf.blocks.attend.sdpa import attend_sdpa
from minitf.blocks.mask.causal import Causal
from minitf.blocks.mask.full import Full
from minitf.blocks.normalize.softmax import Softmax
from minitf.blocks.score.scaled_dot import ScaledDot


def read(q, k, v, mask=None, scale=None):
    """Output, weights and raw scores of one head; the fast path must agree."""
    q, k, v = (torch.tensor(t, dtype=torch.float32)[None, None] for t in (q, k, v))
    score = ScaledDot(d_head=q.size(-1), n_heads=1)
    score.scale = score.scale if scale is None else scale
    seen = {}
    where = {
        "mask": mask or Full(),
        "q_pos": torch.arange(q.size(2))[None] + k.size(2) - q.size(2),
        "k_pos": torch.arange(k.size(2))[None],
    }
    out, weights = attend_reference(
        q, k, v, score=score, normalize=Softmax(n_heads=4), **where, tap=lambda name, x: seen.setdefault(name, x)
    )
    fast = attend_sdpa(q, k, v, scale=score.scale, plain=True, **where)
    torch.testing.assert_close(fast, out, atol=1e-6, rtol=0)
    return out[0, 0], weights[0, 0], seen["scores"][0, 0]


def assert_digits(actual, expected, digits):
    torch.testing.assert_close(actual, torch.tensor(expected), atol=0.5001 * 10**-digits, rtol=0)


def test_three_tokens():
    x = [[1, 0], [0, 1], [1, 1]]
    out, weights, scores = read(x, x, x)
    assert_digits(scores, [[0.707, 0, 0.707], [0, 0.707, 0.707], [0.707, 0.707, 1.414]], 3)
    assert_digits(weights, [[0.401, 0.198, 0.401], [0.198, 0.401, 0.401], [0.248, 0.248, 0.503]], 3)
    assert_digits(out, [[0.802, 0.599], [0.599, 0.802], [0.7517, 0.7517]], 3)
    distances = torch.pdist(out)
    assert_digits(torch.pdist(torch.tensor(x).float()), [1.414, 1.0, 1.0], 3)
    assert_digits(distances, [0.288, 0.161, 0.161], 3)


def test_pronoun():
    """它 reads 猫: three keys with scores 4, 1 and 0 for a head of width 4."""
    q, k = [[1, 1, 0, 0]], [[2, 2, 0, 0], [1, 0, 1, 0], [0, 0, 1, 1]]
    out, weights, scores = read(q, k, torch.eye(3).tolist())
    assert_digits(scores, [[2.0, 0.5, 0.0]], 6)
    assert_digits(scores.exp().sum(-1), [10.038], 3)
    assert_digits(weights, [[0.7361, 0.1643, 0.0996]], 4)
    assert torch.equal(out, weights)  # values that are one-hot places show the weights
    _, unscaled, _ = read(q, k, torch.eye(3).tolist(), scale=1.0)
    assert_digits(unscaled, [[0.9362, 0.0466, 0.0171]], 4)


def test_two_tokens_and_only_v_changed():
    eye = [[1, 0], [0, 1]]
    out, weights, scores = read(eye, eye, [[2, 0], [0, 4]], mask=Causal())
    assert_digits(weights, [[1.0, 0.0], [0.3302, 0.6698]], 4)
    assert_digits(out, [[2.0, 0.0], [0.6605, 2.6790]], 4)
    other, same_weights, same_scores = read(eye, eye, [[2, 0], [10, 10]], mask=Causal())
    assert torch.equal(weights, same_weights)
    assert torch.equal(scores, same_scores)
    assert torch.equal(out[0], other[0])
    assert_digits(other[1], [0.3302 * 2 + 6.698, 6.698], 3)


def test_scaled_scores_have_unit_variance():
    for d in (8, 64, 256):
        q, k = torch.randn(1, 1, 400, d), torch.randn(1, 1, 400, d)
        assert 0.9 < ScaledDot(d_head=d, n_heads=4)(q, k).var() < 1.1
        assert 0.9 < (q @ k.mT).var() / d < 1.1
