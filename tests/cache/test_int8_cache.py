import functools
import io

import parts
import pytest
import torch

from minitf.cache.dynamic import Dynamic
from minitf.cache.int8 import Int8, quantise, restore
from minitf.cache.static import Static
from minitf.config import build, check, compose
from minitf.errors import ConfigError
from minitf.tap import Tap

INNER = {"dynamic": Dynamic, "static": functools.partial(Static, 16)}


@pytest.fixture(params=INNER)
def cache(request):
    return Int8(INNER[request.param])


def entries(n=6, rows=2, dtype=torch.float32):
    """Keys and values whose vectors differ widely in size; two of them are zero."""
    torch.manual_seed(0)
    made = [(torch.randn(rows, 3, n, d) * 10 ** (4 * torch.randn(rows, 3, n, 1))).to(dtype) for d in (8, 5)]
    made[0][0, 1, -1] = made[1][1, 2, 0] = 0
    return made


def fill(cache, given, sizes):
    start = 0
    for n in sizes:
        piece = [e[..., start : start + n, :] for e in given]
        got = cache.update(*piece, pos=torch.arange(start, start + n)[None], plain=True)
        start += n
    return got


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_number_is_off_by_half_a_step_of_its_vector_at_most(cache, dtype):
    given = entries(dtype=dtype)
    got, q_pos, k_pos, plain = fill(cache, given, [6])
    assert (q_pos.tolist(), k_pos.tolist(), plain) == ([[*range(6)]], [[*range(6)]], True)
    for x, y in zip(given, got, strict=True):
        largest = x.abs().amax(-1, keepdim=True)
        assert y.dtype == dtype
        assert ((y - x).abs() <= largest * (1 / 254 + torch.finfo(torch.float32).eps + torch.finfo(dtype).eps)).all()
        assert (y.abs().amax(-1) > 0.99 * largest[..., 0]).equal(largest[..., 0] > 0), "zero stays zero, nothing else"
        assert dtype == torch.bfloat16 or ((y - x).abs() / largest).nan_to_num().max() > 0.9 / 254, "the bound is tight"


@pytest.mark.parametrize("sizes", [[1] * 6, [2, 3, 1]])
def test_pieces_give_bit_for_bit_what_the_whole_gives(cache, sizes):
    given = entries()
    whole, *_ = fill(Int8(Dynamic), given, [6])
    got, _, k_pos, _ = fill(cache, given, sizes)
    assert k_pos.tolist() == [[*range(6)]]
    for x, y, z in zip(whole, got, cache.read()[0], strict=True):
        assert torch.equal(x, y)
        assert torch.equal(x, z)


def test_memory_is_a_byte_a_number_and_four_a_vector():
    cache, plain = Int8(Dynamic), Dynamic()
    given = [torch.randn(2, 3, 7, d) for d in (64, 32)]
    for c in (cache, plain):
        fill(c, given, [6, 1])
    assert cache.n_bytes == 2 * 3 * 7 * ((64 + 4) + (32 + 4))
    assert plain.n_bytes == 4 * 2 * 3 * 7 * (64 + 32)


def test_everything_else_is_done_by_the_cache_inside(cache):
    given = entries()
    fill(cache, given, [6])
    cache.select(torch.tensor([1, 1, 0]))
    cache.crop(4)
    (k, v), pos = cache.read()
    held, _, _, _ = fill(Int8(Dynamic), [e[[1, 1, 0], :, :4] for e in given], [4])
    assert torch.equal(k, held[0])
    assert torch.equal(v, held[1])
    assert (cache.n_seen, cache.n_held, cache.plain, pos.shape[-1]) == (4, 4, True, 4)
    saved = io.BytesIO()
    torch.save(cache.state_dict(), saved)
    saved.seek(0)
    other = Int8(lambda: type(cache.inner)())
    other.reserve(9)
    other.load_state_dict(torch.load(saved))
    assert torch.equal(other.read()[0][1], v)
    with pytest.raises(ConfigError, match=r"float32.*float64"):
        other.update(*entries(1, 3, torch.float64), pos=torch.tensor([[4]]), plain=True)
    assert other.n_seen == 4
    other.reset()
    with pytest.raises(ConfigError, match="empty"):
        other.read()
    other.update(pos=torch.tensor([[-1, 0]]), plain=False)  # a layer that keeps nothing
    assert (other.n_seen, other.plain, other.read()[0]) == (2, False, ())


class Odd(Dynamic):
    """Everything that a cache can say about itself, said."""

    raw_keys, in_order, keeps, exact, chunk_limit = True, False, (5, 2), False, 3


def test_it_is_what_the_cache_inside_is():
    made = Int8(Odd)
    assert (made.raw_keys, made.in_order, made.keeps, made.exact, made.chunk_limit) == (True, False, (5, 2), False, 3)
    with pytest.raises(ConfigError, match="do not fit a static cache of 4 places"):
        Int8(lambda: Static(4)).reserve(5)
    source = Int8(lambda: Static(4)).for_source()
    fill(source, entries(), [6])  # kept whole, whatever max_len
    assert source.n_bytes == 2 * 3 * 6 * (8 + 5 + 4 + 4)


def bound(q, k, v, factor):
    """The largest error of each number of a head's output (B,H,T,d), by the formula of the docstring; causal."""

    def half(x):
        return (x.abs().amax(-1) / 254).cummax(-1).values[..., None]  # (B,H,T,1), over the keys up to each query

    e = factor * q.abs().sum(-1, keepdim=True) * half(k)
    spread = v.cummax(-2).values - v.cummin(-2).values
    return half(v) + torch.tanh(e / 2) * spread


@pytest.mark.parametrize("scale", [1.0, 4.0])
@pytest.mark.parametrize("option", ["mha", "gqa", "mqa"])
def test_an_attention_output_is_off_by_what_the_formula_allows_at_most(option, scale):
    block = parts.attention(f"model/attention={option}", scale=scale).double()
    x = torch.randn(3, 9, 16, dtype=torch.float64)
    for name in ("rope", "alibi"):
        scheme = parts.position(name, n_heads=block.n_heads)
        with Tap(block, at=["q", "k", "v", "heads"]) as exact:
            parts.attend(block, x, scheme=scheme)
        with Tap(block, at=["heads"]) as rounded:
            parts.attend(block, x, cache=Int8(Dynamic), scheme=scheme)
        shared = block.n_heads // block.n_kv_heads
        k, v = (exact[name].repeat_interleave(shared, 1) for name in "kv")
        allowed = bound(exact["q"], k, v, block.d_head**-0.5)
        error = (rounded["heads"] - exact["heads"]).abs()
        assert (error <= allowed * (1 + 1e-5)).all()
        assert (error / allowed).max() > 0.1, "a bound that says something"


def test_an_attention_gives_the_same_in_pieces(cache):
    block = parts.attention().double()  # float64: else another order of sums may round a number to the next code
    x = torch.randn(2, 9, 16, dtype=torch.float64)
    whole = parts.attend(block, x, cache=Int8(Dynamic))
    got = torch.cat([parts.attend(block, piece, cache=cache) for piece in x.split([4, 1, 1, 3], 1)], 1)
    torch.testing.assert_close(got, whole, atol=1e-6, rtol=0)
    assert (whole - parts.attend(block, x)).abs().max() > 1e-4


@torch.no_grad()
@pytest.mark.parametrize(
    ("inner", "preset"),
    [
        ("dynamic", "llama_tiny"),
        ("static", "encdec_tiny"),
    ],
)
def test_a_model_computes_what_it_would_with_rounded_keys_and_values(inner, preset):
    model, ids, pos = parts.model(preset, scale=4).double(), torch.randint(65, (2, 9)), parts.padded([9, 5], "left")
    source = {}
    if preset == "encdec_tiny":
        source = {"memory": model.encode(torch.randint(65, (2, 6))), "memory_pos": parts.padded([3, 6], "right")}

    def rounded(x):
        return restore(*quantise(x), x.dtype)

    points = [name for name in Tap.names(model) if name.endswith((".k", ".v")) and not name.startswith("encoder.")]
    with Tap(model, edit=dict.fromkeys(points, rounded)):
        expected = model.hidden(ids, pos, **source)
    caches = model.new_caches(lambda: Int8(INNER[inner]))
    got = [model.hidden(ids[:, p], pos[:, p], caches=caches, **source) for p in (slice(4), slice(4, 5), slice(5, 9))]
    torch.testing.assert_close(torch.cat(got, 1)[pos >= 0], expected[pos >= 0], atol=1e-6, rtol=0)
    assert (expected - model.hidden(ids, pos, **source)).abs().max() > 1e-4


def test_the_cache_inside_is_chosen_on_the_command_line():
    typed = ["cache=int8", "cache@cache.inner=static", "cache.inner.max_len=7"]
    cfg = compose("generate", typed)
    check(cfg, "generate", typed)
    made = build(cfg.cache)()
    assert (type(made.inner), made.inner.max_len) == (Static, 7)
    assert made.inner is not build(cfg.cache)().inner
    assert type(parts.caches("int8")().inner) is Dynamic
    for inner, got in (("none", "got {}"), ("int8", "another int8")):
        with pytest.raises(ConfigError, match=f"{got}.*cache@cache.inner=dynamic"):
            build(compose("generate", ["cache=int8", f"cache@cache.inner={inner}"]).cache)()
