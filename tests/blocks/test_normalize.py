import parts
import pytest
import torch

from minitf.blocks.normalize.softmax import Softmax
from minitf.config import build

EVERY_NORMALIZER = parts.options("model/attention/normalize")
# normalisers whose rows are no distributions, by their own definition
NO_DISTRIBUTION: set[str] = set()


def normalizer(name):
    return build(parts.node("gpt_tiny", f"model/attention/normalize={name}").attention.normalize)(n_heads=3)


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
    visible = some_mask()
    weights = normalizer(name)(scores, visible)
    assert weights.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert not weights[..., ~visible].any()
    with torch.autograd.detect_anomaly(check_nan=True):
        (1e3 * weights * torch.randn_like(weights)).sum().backward()
    assert scores.grad.isfinite().all()
    assert not scores.grad[..., ~visible].any()


@pytest.mark.parametrize("name", sorted(set(EVERY_NORMALIZER) - NO_DISTRIBUTION))
def test_rows_are_distributions(name):
    weights = normalizer(name)(10 * torch.randn(2, 3, 6, 6), some_mask())
    assert (weights >= 0).all()
    expected = torch.ones(2, 3, 6).index_fill(-1, torch.tensor([2]), 0.0)
    torch.testing.assert_close(weights.sum(-1), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", EVERY_NORMALIZER)
def test_a_float_mask_is_refused(name):
    with pytest.raises(TypeError, match="True = may be read"):
        normalizer(name)(torch.zeros(1, 1, 2, 2), torch.zeros(2, 2))


def test_softmax_is_torchs_softmax():
    scores = torch.randn(2, 3, 5, 7, dtype=torch.float64, requires_grad=True)
    visible = (torch.rand(2, 1, 5, 7) > 0.4).index_fill(-1, torch.tensor([0]), True)
    expected = scores.masked_fill(~visible, float("-inf")).softmax(-1)
    ours = Softmax(n_heads=4)(scores, visible)
    torch.testing.assert_close(ours, expected)
    grads = [torch.autograd.grad((w * torch.arange(7)).sum(), scores)[0] for w in (ours, expected)]
    torch.testing.assert_close(*grads)


def test_an_edge_cut_by_minus_infinity_is_hidden_too():
    """Editing a score to -inf takes the edge away, also the last one of a row."""
    scores = torch.tensor([[[[1.0, float("-inf")], [float("-inf"), float("-inf")]]]])
    assert Softmax(n_heads=4)(scores, torch.ones(2, 2).bool()).tolist() == [[[[1.0, 0.0], [0.0, 0.0]]]]
