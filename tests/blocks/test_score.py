"""Scores: each is its formula, in both of its forms, in every dtype."""

import math

import parts
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from minitf.blocks.attend import repeat_heads
from minitf.blocks.attend.reference import attend_reference
from minitf.blocks.mask.causal import Causal
from minitf.blocks.normalize.softmax import Softmax
from minitf.blocks.score.additive import Additive
from minitf.blocks.score.log_length import LogLength
from minitf.blocks.score.scaled_dot import ScaledDot
from minitf.blocks.score.soft_cap import SoftCap
from minitf.config import build, compose
from minitf.errors import ConfigError

EVERY_SCORE = parts.options("model/attention/score")
D = 6


def score(name, *overrides, dtype=torch.float64, drawn=True, d_head=D, n_heads=4):
    """One score; `drawn`: its parameters are random, else as they start."""
    chosen = [f"model.attention.score.{o}" for o in overrides]
    node = parts.node("gpt_tiny", f"model/attention/score={name}", *chosen).attention.score
    made = build(node)(d_head=d_head, n_heads=n_heads).to(dtype)
    if drawn:
        with torch.no_grad():
            for p in made.parameters():
                p.copy_(torch.randn_like(p))
    return made


IS_DOT = [name for name in EVERY_SCORE if score(name).is_dot]


def vectors(*lengths, dtype=torch.float64, n_heads=4):
    return [torch.randn(2, n_heads, n, D, dtype=dtype, requires_grad=True) for n in lengths]


def cosine(q, k):
    return torch.dot(q, k) / math.sqrt((torch.dot(q, q) + 1e-6) * (torch.dot(k, k) + 1e-6))


def leaky(x):
    return torch.where(x > 0, x, 0.2 * x)


# a query vector, a key vector, the score's parameters of their head
FORMULAS = {
    "additive": lambda q, k, p: sum(p["v"][i] * torch.tanh(q @ p["w_q"][:, i] + k @ p["w_k"][:, i]) for i in range(D)),
    "cosine": lambda q, k, p: cosine(q, k) * math.exp(p["factor.log"]),
    "dot": lambda q, k, p: sum(a * b for a, b in zip(q, k, strict=True)),
    "gat": lambda q, k, p: leaky(torch.dot(p["a_q"], q) + torch.dot(p["a_k"], k)),
    "gatv2": lambda q, k, p: sum(p["v"][i] * leaky(q @ p["w_q"][:, i] + k @ p["w_k"][:, i]) for i in range(D)),
    "general": lambda q, k, p: sum(q[i] * p["w"][i, j] * k[j] for i in range(D) for j in range(D)),
    "l2": lambda q, k, p: -sum((a - b) ** 2 for a, b in zip(q, k, strict=True)) / math.sqrt(D),
    "log_length": lambda q, k, p: torch.dot(q, k) / math.sqrt(D),  # what it does by row is tested below
    "scaled_dot": lambda q, k, p: torch.dot(q, k) / math.sqrt(D),
    "soft_cap": lambda q, k, p: 2 * math.tanh(torch.dot(q, k) / math.sqrt(D) / 2),  # parts.SMALL: a cap that shows
    "temperature": lambda q, k, p: torch.dot(q, k) / math.sqrt(D) * math.exp(p["factor.log"]),
}


@pytest.mark.parametrize("name", EVERY_SCORE)
def test_score_is_its_formula_for_every_pair_of_vectors(name):
    made = score(name)
    q, k = (t.detach() for t in vectors(2, 3))
    ours = made(q, k)
    assert ours.shape == (2, 4, 2, 3)
    for b, h, t, s in torch.cartesian_prod(*map(torch.arange, ours.shape)).tolist():
        own = {key: p[h].detach() for key, p in made.named_parameters()}
        expected = torch.as_tensor(FORMULAS[name](q[b, h, t], k[b, h, s], own), dtype=torch.float64)
        torch.testing.assert_close(ours[b, h, t, s], expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize("name", IS_DOT)
@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
def test_dot_form_is_the_definition_for_grouped_heads(name, n_kv_heads):
    made, (q,), (k,) = score(name), vectors(3), vectors(5, n_heads=n_kv_heads)
    weights = torch.randn(2, 4, 3, 5, dtype=torch.float64)
    results = []
    for form in ("definition", "dot"):
        if form == "definition":
            scores = made(q, repeat_heads(k, 4))
        else:
            q_dot, k_dot, scale = made.dot_form(q, k)
            assert (q_dot.dtype, k_dot.shape[:3]) == (q.dtype, k.shape[:3])
            scores = q_dot @ repeat_heads(k_dot, 4).mT * scale
        results.append([scores, *torch.autograd.grad((scores * weights).sum(), [q, k, *made.parameters()])])
    for ours, defined in zip(*results, strict=True):
        torch.testing.assert_close(ours, defined, atol=1e-10, rtol=0)


def test_only_what_is_no_product_says_so():
    assert set(EVERY_SCORE) - set(IS_DOT) == {"additive", "gat", "gatv2", "l2", "log_length", "soft_cap"}


@pytest.mark.parametrize("name", EVERY_SCORE)
def test_every_dtype_and_autocast_agree(name):
    made = score(name)
    q, k = vectors(4, 5)
    exact = made(q, k)
    for dtype, bound in ((torch.float32, 1e-5), (torch.bfloat16, 4e-2)):
        rounded = score(name, dtype=dtype)
        rounded.load_state_dict(made.state_dict())
        ours = rounded(q.to(dtype), k.to(dtype))
        assert (ours - exact).abs().max() < bound * (1 + exact.abs().max())
        if rounded.is_dot:
            assert [t.dtype for t in rounded.dot_form(q.to(dtype), k.to(dtype))[:2]] == [dtype, dtype]
    single = made.float()
    for given in (torch.float32, torch.bfloat16):  # a norm gives float32 under autocast, a matrix bfloat16
        with torch.autocast("cpu", dtype=torch.bfloat16):
            ours = single(q.to(given), k.to(given))
            by_product = single.dot_form(q.to(given), k.to(given))[0] if single.is_dot else None
        assert (ours - exact).abs().max() < 4e-2 * (1 + exact.abs().max())
        ours.float().sum().backward()
        assert by_product is None or given == torch.float32 or by_product.dtype == torch.bfloat16


@pytest.mark.parametrize("name", EVERY_SCORE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_zero_and_large_vectors_have_finite_scores_and_gradients(name, dtype):
    for size in (0.0, 1e3):
        made = score(name, dtype=dtype, drawn=False)
        q, k = (size * t.detach() for t in vectors(3, 3, dtype=dtype))
        q[:, :, 0] = k[:, :, 0] = 0
        q.requires_grad_(), k.requires_grad_()
        scores = made(q, k)
        scores.float().sum().backward()
        assert all(t.isfinite().all() for t in (scores, q.grad, k.grad, *(p.grad for p in made.parameters())))


@pytest.mark.parametrize("name", EVERY_SCORE)
def test_every_parameter_is_learned_and_starts_alike_for_the_same_seed(name):
    torch.manual_seed(3)
    made = score(name, drawn=False)
    torch.manual_seed(3)
    again = score(name, drawn=False)
    (made(*vectors(3, 5)) * torch.randn(2, 4, 3, 5)).sum().backward()
    for (key, p), other in zip(made.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(p, other), key
        assert p.size(0) == 4, f"{key} has one row a head"
        assert (p.grad.flatten(1).norm(dim=1) > 0 if p.dim() > 1 else p.grad != 0).all(), key


@pytest.mark.parametrize("name", ["general", "temperature"])
def test_a_learned_score_starts_as_the_scaled_product(name):
    q, k = vectors(3, 5)
    torch.testing.assert_close(score(name, drawn=False)(q, k), ScaledDot(d_head=D, n_heads=4)(q, k))


@pytest.mark.parametrize("name", EVERY_SCORE)
def test_scores_start_at_a_size_that_softmax_can_use(name):
    made = score(name, d_head=64, drawn=False, dtype=torch.float32)
    q, k = torch.randn(2, 2, 4, 60, 64).unbind(0)
    spread = made(q, k).std(-1).mean()  # over the keys of a row: what all of them share, softmax does not see
    expected = {"dot": 8.0, "additive": 0.48, "gat": 0.6, "gatv2": 0.45, "l2": 2.4, "cosine": 1.25}.get(name, 1.0)
    assert 0.8 * expected < spread < 1.2 * expected


# --- additive ---


@pytest.mark.parametrize("name", ["additive", "gatv2"])
def test_additive_in_chunks_is_additive(name):
    q, k = vectors(7, 5)
    weights = torch.randn(2, 4, 7, 5, dtype=torch.float64)
    made, results = score(name), []
    for chunk in (None, 1, 3, 7, 100):
        made.chunk = chunk
        scores = made(q, k)
        results.append([scores, *torch.autograd.grad((scores * weights).sum(), [q, k, *made.parameters()])])
        with torch.no_grad():
            assert torch.equal(made(q, k), scores)
    for chunked in results[1:]:
        for ours, whole in zip(chunked, results[0], strict=True):
            torch.testing.assert_close(ours, whole, atol=1e-12, rtol=0)


class Largest(TorchDispatchMode):
    """The most elements of a tensor that any operation gave."""

    n = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for t in out if isinstance(out, tuple | list) else (out,):
            if isinstance(t, torch.Tensor):
                self.n = max(self.n, t.numel())
        return out


def largest_tensors(chunk, q, k):
    """Most elements of what any operation gave, and of what was kept for the backward pass."""
    made, kept = Additive(d_head=16, n_heads=2, chunk=chunk), []
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t)
    with Largest() as largest:
        with hooks:
            scores = made(q, k)
        scores.sum().backward()
    return largest.n, max(kept)


def test_additive_in_chunks_never_holds_every_pair():
    q, k = (torch.randn(1, 2, 32, 16, requires_grad=True) for _ in range(2))
    pairs = 2 * 32 * 32
    assert largest_tensors(None, q, k) == (16 * pairs, 16 * pairs)
    made, kept = largest_tensors(4, q, k)
    assert made == 16 * pairs * 4 // 32  # some queries with every key, forward and backward
    assert kept <= pairs


# --- what is special about one ---


def test_cosine_sees_directions_only():
    made = score("cosine")
    q, k = vectors(3, 5)
    torch.testing.assert_close(made(q, k), made(1e3 * q, 1e2 * k), atol=1e-5, rtol=0)
    bound = made.factor.log.exp()[:, None, None]
    torch.testing.assert_close(
        made(q, q).diagonal(dim1=-2, dim2=-1), bound.squeeze(-1).expand(2, 4, 3), atol=1e-5, rtol=0
    )
    assert (made(q, k).abs() <= bound).all()


def test_l2_prefers_the_nearest_and_ignores_what_all_keys_share():
    made = score("l2")
    q, k = vectors(3, 5)
    assert torch.equal(made(q, k).argmax(-1), torch.cdist(q, k).argmin(-1))
    torch.testing.assert_close(made(q, q).diagonal(dim1=-2, dim2=-1), torch.zeros(2, 4, 3, dtype=torch.float64))
    even = k / k.norm(dim=-1, keepdim=True)  # keys of one length: twice the scaled dot product
    expected = (2 * ScaledDot(d_head=D, n_heads=4)(q, even)).softmax(-1)
    torch.testing.assert_close(made(q, even).softmax(-1), expected)


def test_gat_has_one_best_key_for_all_queries_and_gatv2_has_not():
    q, k = vectors(20, 20)
    same = {}
    for name in ("gat", "gatv2", "additive", "scaled_dot"):
        best = score(name)(q, k).argmax(-1)
        same[name] = (best == best[..., :1]).all(-1).float().mean()
    assert same.pop("gat") == 1
    assert max(same.values()) < 0.5, same  # by chance a long key may be the best for all


def test_gat_still_reads_more_or_less_sharply_by_the_query():
    made = score("gat")
    q, k = vectors(20, 20)
    sharpest = made(q, k).softmax(-1).amax(-1)
    assert (sharpest.amax(-1) > 1.2 * sharpest.amin(-1)).all()


def test_soft_cap_bounds_the_score_and_leaves_small_ones():
    made, plain = score("soft_cap", "cap=3.0"), ScaledDot(d_head=D, n_heads=4)
    q, k = vectors(20, 20)
    assert made(100 * q, k).abs().max() <= 3
    assert plain(100 * q, k).abs().max() > 100
    torch.testing.assert_close(made(0.01 * q, k), plain(0.01 * q, k), atol=1e-5, rtol=0)
    assert torch.equal(made(q, k).argsort(-1), plain(q, k).argsort(-1))


def test_log_length_sharpens_by_the_keys_that_a_row_may_read():
    made = score("log_length", "base=4")
    q, k = vectors(6, 6)
    pos, seen = torch.arange(6)[None], {}
    where = {"mask": Causal(), "q_pos": pos, "k_pos": pos, "bias": torch.ones(1, 4, 6, 6)}
    attend_reference(
        q, k, k, score=made, normalize=Softmax(n_heads=4), **where, tap=lambda name, x: seen.setdefault(name, x)
    )
    for t in range(6):
        inner = made.inner(q, k)[:, :, t]
        # 4 keys: as it is; 1 key: no difference; what is added afterwards is not scaled
        torch.testing.assert_close(seen["scores"][:, :, t] - 1, inner * math.log(t + 1) / math.log(4))
    nothing = made.by_row(torch.ones(1, 1, 1, 1), torch.zeros(1, 1, 1, 1, dtype=torch.int64))
    assert nothing.isfinite().all()


def test_log_length_takes_the_length_of_the_training_rows():
    chosen = compose("train", ["model/attention/score=log_length", "data.seq_len=48"])
    assert chosen.model.attention.score.base == 48


def test_a_wrapper_applies_what_the_inner_score_does_by_row():
    def inner(**sizes):
        return LogLength(**sizes, inner=ScaledDot, base=2)

    n_visible, scores = torch.full((1, 1, 1, 1), 8), torch.ones(1, 1, 1, 1)
    sizes = {"d_head": 4, "n_heads": 1, "inner": inner}
    for made in (SoftCap(**sizes, cap=50.0), LogLength(**sizes, base=8)):
        torch.testing.assert_close(made.by_row(scores, n_visible), 3 * scores)


@pytest.mark.parametrize("name", parts.options("model/attention/qk_norm"))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_query_key_norms_are_their_formulas(name, dtype):
    norm = build(parts.node("gpt_tiny", f"model/attention/qk_norm={name}").attention.qk_norm)(8).to(dtype)
    x = (5 + 3 * torch.randn(4, 8)).to(dtype)
    x[0] = 0
    x.requires_grad_()
    length = x.square().sum(-1, keepdim=True)
    formula = {
        "layer": lambda: (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + 1e-5).sqrt(),
        "none": lambda: x,
        "rms": lambda: x / (length / 8 + 1e-6).sqrt(),
        "l2": lambda: x / (length + 1e-6).sqrt(),
    }[name]
    ours = norm(x)
    assert ours.dtype == dtype
    bound = 5e-2 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(ours, formula(), atol=bound, rtol=bound)
    ours.sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize(
    ("choice", "override", "message"),
    [
        ("score=additive", "score.chunk=0", "chunk must be a whole number of at least 1, got 0"),
        ("score=gat", "score.slope=0", "score slope must be a finite number above 0, got 0: 0.2 is usual"),
        ("score=gatv2", "score.slope=-1", "score slope must be a finite number above 0"),
        ("score=cosine", "score.initial=0", "score initial must be a finite number above 0, got 0"),
        ("score=cosine", "score.eps=0", "score eps must be a finite number above 0"),
        ("score=temperature", "score.initial=-1", "score initial must be a finite number above 0"),
        ("score=log_length", "score.base=1", "score base must be a finite number above 1, got 1"),
        ("score=soft_cap", "score.cap=0", "score cap must be a finite number above 0"),
        ("qk_norm=l2", "qk_norm.eps=0", "norm eps must be a finite number above 0"),
    ],
)
def test_numbers_out_of_range_are_refused(choice, override, message):
    with pytest.raises(ConfigError, match=message):
        build(parts.node("gpt_tiny", f"model/attention/{choice}", f"model.attention.{override}"))
