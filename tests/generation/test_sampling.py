import pytest
import torch
from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from minitf.errors import ConfigError
from minitf.generation.sampling import Greedy, Sample, draw, keep_min_p, keep_top_k, keep_top_p


def generators(*seeds):
    return [torch.Generator().manual_seed(s) for s in seeds]


def kept(logits):
    return [row.isfinite().nonzero().flatten().tolist() for row in logits]


@pytest.mark.parametrize(
    ("probs", "p", "n"),
    [
        ([0.5, 0.41, 0.09], 0.9, 2),
        ([0.5, 0.3, 0.15, 0.05], 0.6, 2),
        ([0.4, 0.3, 0.2, 0.1], 0.8, 3),
        ([0.5, 0.35, 0.1, 0.05], 0.9, 3),
        ([0.7, 0.2, 0.1], 1e-9, 1),
        ([0.7, 0.2, 0.1], 1.0, 3),
        ([1.0, 1e-30, 1e-30], 1.0, 3),  # 1 keeps everything, however unlikely
    ],
)
def test_top_p_keeps_the_smallest_set_that_reaches_p(probs, p, n):
    logits = torch.tensor([probs, probs[::-1]]).log()
    last = len(probs) - 1
    assert kept(keep_top_p(logits, p)) == [list(range(n)), sorted(last - i for i in range(n))]


def test_top_k_keeps_k_and_ties_per_row():
    logits = torch.tensor([[3.0, 1.0, 2.0, 0.0], [0.0, 1.0, 1.0, 2.0]])
    assert kept(keep_top_k(logits, 2)) == [[0, 2], [1, 2, 3]]
    for k in (4, 99):
        assert torch.equal(keep_top_k(logits, k), logits)


@pytest.mark.parametrize(
    ("probs", "p", "n"),
    [
        ([0.5, 0.3, 0.15, 0.05], 0.31, 2),
        ([0.5, 0.3, 0.15, 0.05], 0.29, 3),
        ([0.4, 0.4, 0.2], 1.0, 2),  # 1 keeps the largest, and what ties with it
        ([0.9, 0.1], 1e-9, 2),
    ],
)
def test_min_p_keeps_what_is_likely_enough_beside_the_largest(probs, p, n):
    logits = torch.tensor([probs, probs[::-1]], dtype=torch.float64).log() + torch.tensor([[7.0], [-3.0]])
    last = len(probs) - 1
    assert kept(keep_min_p(logits, p)) == [list(range(n)), sorted(last - i for i in range(n))]


@pytest.mark.parametrize("how", [(0.7, 12, 0.8, 0.1), (1.5, None, 0.9, 0.3), (2.0, 30, None, 0.2), (0.5, 3, 0.3, None)])
def test_filters_and_their_order_are_those_of_transformers(how):
    logits = 3 * torch.randn(20, 50).double()
    kinds = (TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper, MinPLogitsWarper)
    expected = logits
    for kind, value in zip(kinds, how, strict=True):
        expected = expected if value is None else kind(value)(None, expected)
    probs = Sample(*how).probs(logits)
    assert probs.dtype == torch.float64
    torch.testing.assert_close(probs, expected.softmax(-1))
    assert torch.equal(probs > 0, expected.isfinite())


def test_the_narrowed_distribution_is_what_is_drawn_from():
    logits = torch.randn(4, 30)
    sampler, own = Sample(0.8, 10, 0.9, 0.05), [generators(*range(4)) for _ in range(3)]
    drawn = sampler(logits, own[0])
    assert torch.equal(draw(sampler.probs(logits), own[1]), drawn)
    by_torch = [torch.multinomial(p, 1, generator=g) for p, g in zip(sampler.probs(logits), own[2], strict=True)]
    assert torch.equal(torch.cat(by_torch), drawn)
    for certain in (Greedy(), Sample(0, 3, 0.5, 0.1)):
        probs = certain.probs(logits)
        assert probs.dtype == torch.float64
        assert torch.equal(probs, torch.eye(30).double()[logits.argmax(-1)])


def test_filters_leave_what_they_keep_as_it_was():
    logits = torch.randn(3, 20)
    for narrowed in (keep_top_k(logits, 5), keep_top_p(logits, 0.5), keep_min_p(logits, 0.3)):
        assert torch.equal(narrowed[narrowed.isfinite()], logits[narrowed.isfinite()])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_no_temperature_is_the_largest_logit(dtype):
    logits = torch.tensor([[1.0, 5.0, 2.0], [300.0, -2.0, 3.0]], dtype=dtype)
    for sampler in (Greedy(), *(Sample(t, k, p) for t in (0, 1e-6, 1e-320) for k in (None, 2) for p in (None, 0.9))):
        for _ in range(2):
            assert sampler(logits, generators(0, 1)).tolist() == [1, 0]


def test_draws_follow_the_distribution():
    probs = torch.tensor([0.5, 0.3, 0.15, 0.05])
    n = 4000
    logits = (probs.log() * 2).expand(n, 4)  # a temperature of 2 undoes the square
    for narrow, expected in (
        ({"top_k": None, "top_p": None}, probs),
        ({"top_k": 2, "top_p": None}, torch.tensor([0.625, 0.375, 0, 0])),
        # narrowed after the temperature: 0.5 + 0.3 reach 0.6
        ({"top_k": None, "top_p": 0.6}, torch.tensor([0.625, 0.375, 0, 0])),
        ({"top_k": 3, "top_p": 0.9}, torch.tensor([0.5263, 0.3158, 0.1579, 0])),
    ):
        ids = Sample(2.0, **narrow)(logits, generators(*range(n)))
        frequencies = ids.bincount(minlength=4) / n
        assert (frequencies - expected).abs().max() < 5 * (0.25 / n) ** 0.5
        assert not frequencies[expected == 0].any()


def test_a_row_draws_from_its_own_generator():
    logits = torch.randn(3, 50)
    together = Sample(1.0, None, None)(logits, generators(4, 5, 6))
    for row, seed in ((2, 6), (0, 4)):
        assert Sample(1.0, None, None)(logits[[row]], generators(seed)).tolist() == [together[row]]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [((t, None, None), "temperature") for t in (-0.5, float("nan"), float("inf"))]
    + [((1.0, k, None), "top_k") for k in (0, -1, 2.5, True, "many")]
    + [((1.0, None, p), "top_p") for p in (0, -0.1, 1.1, float("nan"), "most")]
    + [((1.0, None, None, p), "min_p") for p in (0, -0.1, 1.1, float("nan"), "most", True)],
)
def test_values_outside_their_range_are_refused(arguments, name):
    with pytest.raises(ConfigError, match=name):
        Sample(*arguments)
