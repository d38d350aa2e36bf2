"""Latent attention is that of transformers' DeepSeek-V2, and its two ways, with keys and values or without, are one.

What all variants of attention share is in the matrix.
"""

import parts
import pytest
import torch
from torch import nn
from transformers.models.deepseek_v2 import modeling_deepseek_v2 as theirs_in

from minitf.blocks.latent import LatentAttention, LatentProjection
from minitf.cache.dynamic import Dynamic
from minitf.config import build
from minitf.errors import ConfigError
from minitf.tap import Tap, zero_heads

WIDE = ["model.attention.d_query_latent=7", "model.attention.d_value=5"]
SCORES = parts.options("model/attention/score")


def latent(*overrides, scale=4.0):
    return parts.attention("model/attention=mla", *overrides, scale=scale)


def size(t):
    return max(1.0, t.detach().abs().max().item())


# --- against transformers ---


@pytest.mark.parametrize("d_query_latent", [None, 7])
def test_it_is_the_attention_of_deepseek_v2(d_query_latent):
    config = theirs_in.DeepseekV2Config(
        hidden_size=16,
        num_attention_heads=4,
        num_key_value_heads=4,
        q_lora_rank=d_query_latent,
        kv_lora_rank=6,
        qk_nope_head_dim=4,
        qk_rope_head_dim=8,
        v_head_dim=5,
        attn_implementation="eager",
    )
    torch.manual_seed(0)
    theirs = theirs_in.DeepseekV2Attention(config, layer_idx=0).eval()
    parts.randomise(theirs, 0.4)
    sizes = {"d_query_latent": d_query_latent or "null", "d_rotary": 8, "d_value": 5}
    ours = latent(*(f"model.attention.{key}={value}" for key, value in sizes.items()))
    # theirs rotates neighbouring features, ours those half a width apart
    halves = torch.cat([torch.arange(0, 8, 2), torch.arange(1, 8, 2)])
    w_q = (theirs.q_proj if d_query_latent is None else theirs.q_b_proj).weight.unflatten(0, (4, 12))
    down, rotary = theirs.kv_a_proj_with_mqa.weight.split([6, 8])
    w_k, w_v = (w.flatten(0, 1) for w in theirs.kv_b_proj.weight.unflatten(0, (4, 9)).split([4, 5], 1))
    weights = {"w_q": torch.cat([w_q[:, :4], w_q[:, 4:][:, halves]], 1).flatten(0, 1), "w_kv_down": down}
    weights |= {"w_k_rotary": rotary[halves], "w_k": w_k, "w_v": w_v, "w_o": theirs.o_proj.weight}
    norms = {"kv_norm": theirs.kv_a_layernorm}
    if d_query_latent is not None:
        weights["w_q_down"], norms["q_norm"] = theirs.q_a_proj.weight, theirs.q_a_layernorm
    state = {f"projection.{name}.weight": w for name, w in weights.items()}
    ours.load_state_dict(state | {f"projection.{name}.weight": norm.weight for name, norm in norms.items()})
    x = torch.randn(2, 9, 16)
    later = torch.full((9, 9), float("-inf")).triu(1)[None, None]
    turns = theirs_in.DeepseekV2RotaryEmbedding(config)(x, torch.arange(9)[None])
    with torch.no_grad():
        expected, weights = theirs(x, attention_mask=later, position_embeddings=turns)
        with Tap(ours, at=["weights"]) as tap:
            out = parts.attend(ours, x, scheme=parts.position("rope", d_head=8))
    torch.testing.assert_close(out, expected, atol=1e-5 * size(expected), rtol=0)
    torch.testing.assert_close(tap["weights"], weights, atol=1e-5, rtol=0)


# --- two ways, one result ---


def in_two_ways(block, run):
    """What `run` gives when keys and values are made, and when the latents themselves are read."""
    found = []
    for absorbs in (False, True):
        block.absorbs = lambda *_, a=absorbs: a
        found.append(run())
    del block.absorbs
    return found


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("side", parts.PADDINGS)
@pytest.mark.parametrize(
    "choice",
    [
        [],
        ["model.attention.fast=null"],
        ["model/attention/normalize=sparsemax"],
        ["model/attention/normalize=sink", "model/attention/score=general"],
        ["model/attention/score=temperature", "model/mask=sliding_window"],
    ],
    ids=" ".join,
)
def test_reading_latents_is_reading_keys_and_values(choice, side, dtype, bound):
    block, scheme = latent(*WIDE, *choice, scale=1.0).to(dtype), parts.position("rope").to(dtype)
    x, pos = torch.randn(2, 8, 16, dtype=dtype, requires_grad=True), parts.padded([8, 5], side)
    real = torch.ones(2, 8, 1) if pos is None else (pos >= 0)[..., None]

    def run():
        cache, pieces = Dynamic(), []
        for piece in (slice(0, 5), slice(5, 7), slice(7, 8)):
            where = None if pos is None else pos[:, piece]
            pieces.append(parts.attend(block, x[:, piece], where, cache, scheme))
        out = torch.cat(pieces, 1) * real
        loss = (out * torch.linspace(-1, 1, 16)).square().sum()
        return [out, *torch.autograd.grad(loss, [x, *block.parameters()])]

    made, read = in_two_ways(block, run)
    largest = max(map(size, made))
    for a, b in zip(made, read, strict=True):
        torch.testing.assert_close(b, a, atol=bound * largest, rtol=0)


def test_the_way_with_fewer_multiplications_is_taken():
    block = latent("model.attention.d_latent=16")
    assert block.absorbs(1, 8)
    assert block.absorbs(1, 10**6)
    assert not block.absorbs(8, 8)  # a row that reads itself
    limit = next(n for n in range(1, 1000) if not block.absorbs(n, 10**6))
    assert limit == 5  # 16 (4 + 4) / (2 (16 + 4) - 8 - 4) = 4.57
    assert latent("model/attention/score=cosine").absorbs(1, 8) is False

    called = []
    block.projection.w_k.register_forward_hook(lambda *_: called.append("keys"))
    cache, x = Dynamic(), torch.randn(1, 8, 16)
    for piece, n in ((slice(0, 6), 1), (slice(6, 7), 1), (slice(7, 8), 1)):
        parts.attend(block, x[:, piece], cache=cache)
        assert len(called) == n


@pytest.mark.parametrize("name", SCORES)
def test_a_score_that_says_so_keeps_keys(name):
    score = parts.factory("model/attention/score", name)(d_head=4, n_heads=2)
    q, k = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 6)  # a key of any width
    assert score.keeps_keys == (name in ("dot", "scaled_dot", "temperature", "general"))
    if score.keeps_keys:
        assert score.is_dot
        assert score.dot_form(q, k)[1] is k


# --- what a cache keeps ---


@pytest.mark.parametrize("name", ["dynamic", "static"])
def test_a_cache_keeps_the_latent_and_one_rotary_key(name):
    model = parts.model("gpt_tiny", "model/attention=mla", "model/position=rope", *WIDE, scale=8)
    ids, pos = torch.randint(65, (2, 9)), parts.padded([9, 6], "left")
    for where in (None, pos):
        caches, pieces = model.new_caches(parts.caches(name)), []
        with torch.no_grad():
            for piece in (slice(0, 4), slice(4, 5), slice(5, 7), slice(7, 9)):
                pieces.append(model(ids[:, piece], None if where is None else where[:, piece], caches))
            expected = model(ids, where)
        found, real = torch.cat(pieces, 1), torch.ones(2, 9).bool() if where is None else where >= 0
        torch.testing.assert_close(found[real], expected[real], atol=1e-5 * size(expected), rtol=0)
        for cache in caches:
            (rotary, kept), _ = cache.read()
            assert (rotary.shape, kept.shape) == ((2, 1, 9, 4), (2, 1, 9, 6))
            if name == "dynamic":
                assert cache.n_bytes == 2 * 9 * (6 + 4) * 4


class Raw(Dynamic):
    """Keeps keys as they are before rotation, for positions that it could change."""

    raw_keys = True


def test_a_cache_that_wants_raw_keys_gets_them():
    block, scheme = latent(), parts.position("rope")
    x, raw = torch.randn(2, 7, 16), Raw()
    with torch.no_grad():
        pieces = [parts.attend(block, piece, cache=raw, scheme=scheme) for piece in x.split((4, 1, 2), 1)]
        expected = parts.attend(block, x, scheme=scheme)
    torch.testing.assert_close(torch.cat(pieces, 1), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(raw.read()[0][0], block.projection.rotary_key(x), atol=1e-6, rtol=0)


def test_a_source_is_read_without_positions_and_from_a_cache():
    block, x, source = latent(*WIDE, "model/position=rope"), torch.randn(2, 3, 16), torch.randn(2, 9, 16)
    memory_pos = parts.padded([9, 6], "right")

    def read(t, scheme, cache=None):
        pos = torch.arange(t.size(1))[None]
        where = {"pos": pos, "plain": True, "position": parts.position(scheme)}
        return block(t, **where, memory=source, memory_pos=memory_pos, cache=cache)

    with torch.no_grad():
        expected, cache = read(x, "none"), Dynamic()
        assert torch.equal(read(x, "rope"), expected)
        read(x[:, :2], "rope", cache)
        assert block.absorbs(1, 9)
        last = read(x[:, 2:], "rope", cache)
        torch.testing.assert_close(last, expected[:, 2:], atol=1e-5, rtol=0)
        q = block.queries(x)
        k, v = block.expand(block.entries(source))
        weights = (q @ k.mT / (4 + 4) ** 0.5).masked_fill(memory_pos[:, None, None] < 0, float("-inf")).softmax(-1)
        torch.testing.assert_close(expected, block.projection.out(weights @ v, x), atol=1e-5, rtol=0)


# --- listening ---


def test_a_tap_sees_keys_and_values_either_way():
    block, scheme, x = latent(*WIDE), parts.position("rope"), torch.randn(2, 7, 16)

    def step(**tapped):
        cache = Dynamic()
        with torch.no_grad():
            parts.attend(block, x[:, :6], cache=cache, scheme=scheme)
            with Tap(block, **tapped) as tap:
                return parts.attend(block, x[:, 6:], cache=cache, scheme=scheme), tap.values

    assert block.absorbs(1, 7)
    (out, made), (read_out, read) = in_two_ways(block, lambda: step(at=["*"]))
    assert {name: tuple(t.shape) for name, t in read.items()} == {
        "q": (2, 4, 1, 8),
        "k": (2, 4, 7, 8),
        "v": (2, 4, 7, 5),
        "scores": (2, 4, 1, 7),
        "weights": (2, 4, 1, 7),
        "heads": (2, 4, 1, 5),
    }
    for name, value in read.items():
        torch.testing.assert_close(value, made[name], atol=1e-5, rtol=0, msg=lambda m, n=name: f"{n}: {m}")
    assert torch.equal(read_out, step()[0])  # listening changes no bit
    assert torch.equal(step(edit={"heads": lambda h: h})[0], read_out)
    silent = nn.Linear(20, 16, bias=False)
    silent.weight = block.projection.w_o.weight
    kept = made["heads"].clone()
    kept[:, 1] = 0
    expected = silent(kept.transpose(1, 2).flatten(-2))
    torch.testing.assert_close(step(edit={"heads": zero_heads([1])})[0], expected, atol=1e-5, rtol=0)
    for point in ("q", "k", "v", "scores", "weights"):
        torch.testing.assert_close(step(edit={point: lambda t: t})[0], out, atol=1e-5, rtol=0)
        assert (step(edit={point: lambda t: 0 * t})[0] - out).abs().max() > 1e-3, point


# --- how it starts, and what is refused ---


@pytest.mark.parametrize("d_query_latent", ["null", "7"])
@pytest.mark.parametrize("rule", parts.options("model/init"))
def test_every_initialisation_finds_its_matrices(rule, d_query_latent):
    sizes = f"model.attention.d_query_latent={d_query_latent}"
    model, plain = (build(parts.node("gpt_tiny", "model/attention=mla", "model/position=rope", sizes)) for _ in "ab")
    for made, name in ((model, rule), (plain, "gpt2")):
        torch.manual_seed(0)
        build(parts.own("model/init", name))(made)
    model(torch.randint(65, (2, 9))).square().sum().backward()
    for layer, other in zip(model.layers, plain.layers, strict=True):
        p, q = layer.attention.projection, other.attention.projection
        zero = {name for name in p.shapes() if not getattr(p, name).weight.any()}
        assert zero == {"zero_q": {"w_q"}, "zero_qk": {"w_q", "w_k", "w_k_rotary"}}.get(rule, set())
        if rule == "zero_qk":  # and stay there
            assert not any(getattr(p, name).weight.grad.any() for name in zero)
        if rule == "zero_q":
            assert p.w_q.weight.grad.any()
        if rule == "gain":
            for name in p.shapes():
                factor = 4 if name in ("w_q", "w_k", "w_k_rotary") else 1
                torch.testing.assert_close(getattr(p, name).weight, factor * getattr(q, name).weight)
        if rule == "identical_heads":
            assert set(p.by_head()) == {"w_q", "w_k", "w_v", "w_o"}
            assert all(torch.equal(heads, heads[:1].expand(4, -1, -1)) for heads in p.by_head().values())
            with Tap(layer.attention, at="heads") as tap:
                parts.attend(layer.attention, 99 * torch.randn(1, 5, 16), scheme=parts.position("rope"))
            torch.testing.assert_close(tap["heads"], tap["heads"][:, :1].expand(-1, 4, -1, -1), atol=1e-6, rtol=0)
        if rule == "sigma_reparam":
            norms = [torch.linalg.matrix_norm(getattr(p, f"w_{n}").weight, 2).item() for n in ("q", "k_rotary", "v")]
            assert norms == pytest.approx([1, 1, 1], rel=1e-4)


def test_the_output_matrix_starts_small():
    sizes = ["model.d_model=128", "model.n_layers=8", "model.attention.d_latent=64"]
    model = build(parts.node("gpt_tiny", "model/attention=mla", *sizes))
    p = model.layers[0].attention.projection
    assert isinstance(p, LatentProjection)
    assert p.w_o.weight.std().item() == pytest.approx(0.02 / 4, rel=0.05)
    assert p.w_v.weight.std().item() == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.attention.d_latent=0"], "d_latent must be a whole number of at least 1, got 0"),
        (["model.attention.d_query_latent=0"], "d_query_latent must be"),
        (["model.attention.d_rotary=0"], "d_rotary must be"),
        (["model.attention.d_value=0"], "d_value must be"),
        (["model.attention.d_head=0"], "d_head must be"),
        (["model.attention.n_heads=3"], r"d_model \(16\) must be a multiple of n_heads \(3\), or set d_head"),
        (["model.attention.dropout=1"], "attention dropout is a probability"),
        (["model/position=rope", "model.attention.d_rotary=3"], r"got 3: .*d_rotary of attention=mla"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        build(parts.node("gpt_tiny", "model/attention=mla", *overrides))


def test_a_recipe_may_choose_it():
    made = parts.node("gpt_tiny", "model/position=rope")
    mla = parts.node("gpt_tiny", "model/attention=mla", "model.attention.d_rotary=4").attention
    made.recipes, made.pattern = {"a": {"attention": mla}}, ["a", "other"]
    model = build(made)
    assert [type(layer.attention) is LatentAttention for layer in model.layers] == [True, False]
    assert model(torch.randint(65, (2, 5))).isfinite().all()
    made.recipes.a.attention.d_rotary = 2
    with pytest.raises(ConfigError, match=r"heads have 2 and 4 features to rotate: .* a position of its own"):
        build(made)
    own = {"attention": made.recipes.a.attention, "position": made.position}
    made.recipes = {"a": own}
    assert build(made)(torch.randint(65, (2, 5))).isfinite().all()
    made.recipes = {"a": own, "other": {"position": made.position}}
    assert build(made)(torch.randint(65, (2, 5))).isfinite().all()
