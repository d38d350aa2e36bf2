import math

import parts
import pytest
import torch

from minitf.blocks.position.alibi import slopes
from minitf.blocks.position.learned import Learned
from minitf.blocks.position.relative_bias import RelativeBias
from minitf.blocks.position.rope import Rope, frequencies
from minitf.blocks.position.scaling.none import NoScaling
from minitf.blocks.position.sinusoidal import Sinusoidal, sinusoids
from minitf.config import build
from minitf.errors import ConfigError
from minitf.positions import SEGMENT

EVERY_POSITION = parts.options("model/position")
pos = torch.arange(6)[None]


@pytest.mark.parametrize("name", EVERY_POSITION)
def test_a_scheme_uses_exactly_the_hooks_it_names(name):
    scheme = parts.position(name)
    x, q = torch.randn(2, 6, 16), torch.randn(2, 4, 6, 4)
    later = pos + 3
    assert torch.equal(scheme.embed(x, later), x) == ("embed" not in scheme.uses)
    assert torch.equal(scheme.rotate(q, later), q) == ("rotate" not in scheme.uses)
    assert (scheme.bias(later, later) is None) == ("bias" not in scheme.uses)


@pytest.mark.parametrize("name", EVERY_POSITION)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_places_restart_in_each_document_and_padding_counts_as_zero(name, dtype):
    scheme = parts.position(name).to(dtype)
    x, q = torch.randn(1, 1, 16, dtype=dtype), torch.randn(1, 4, 1, 4, dtype=dtype)

    def at(place):
        where = torch.tensor([[place]])
        return scheme.embed(x, where), scheme.rotate(q, where)

    for a, b in ((5, 5 + 2 * SEGMENT), (0, -1)):
        for left, right in zip(at(a), at(b), strict=True):
            assert torch.equal(left, right)
            assert left.dtype == dtype


def test_sinusoids_worked_numbers():
    place = torch.tensor([1])
    four = torch.tensor([[0.841471, 0.540302, 0.010000, 0.999950]])
    five = torch.tensor([[0.841471, 0.540302, 0.025116, 0.999685, 0.000631]])
    torch.testing.assert_close(sinusoids(place, 4), four, atol=1e-6, rtol=0)
    torch.testing.assert_close(sinusoids(place, 5), five, atol=1e-6, rtol=0)


def test_a_factor_multiplies_the_sinusoids_alone():
    x, pos = torch.randn(1, 3, 8), torch.tensor([[0, 1, 2]])
    sizes = {"d_model": 8, "d_head": 4, "n_heads": 2, "max_len": 8, "causal": True}
    once, twice = (Sinusoidal(**sizes, **own).embed(x, pos) - x for own in ({}, {"factor": 2.0}))
    torch.testing.assert_close(once, sinusoids(pos, 8))
    torch.testing.assert_close(twice, 2 * sinusoids(pos, 8))
    assert (2**0.5 * sinusoids(torch.arange(999), 8)).square().mean().item() == pytest.approx(1, rel=1e-4)
    with pytest.raises(ConfigError, match="sinusoidal factor must be a finite number above 0, got 0"):
        Sinusoidal(**sizes, factor=0.0)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 5e-4), (torch.bfloat16, 2e-3), (torch.float16, 3e-4)])
def test_rope_angles_are_never_rounded_to_16_bits(dtype, bound):
    d, n = 32, 2048
    places = torch.arange(n)
    x = torch.zeros(1, 1, n, d, dtype=dtype)
    x[..., : d // 2] = 1  # the pair (1, 0) turns into (cos, sin)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        turned = parts.position("rope", d_head=d).rotate(x, places[None])
    angle = places[:, None].double() * 10000.0 ** (-torch.arange(0, d, 2).double() / d)
    exact = torch.cat([angle.cos(), angle.sin()], -1)
    assert turned.dtype == dtype
    assert (turned[0, 0].double() - exact).abs().max() < bound


def rope(*overrides, d_head=8):
    """A rope with some values changed."""
    node = parts.node("llama_tiny", *overrides).position
    return build(node)(d_model=16, d_head=d_head, n_heads=2, max_len=32, causal=True)


SCALED = [f"model/position/scaling={name}" for name in parts.options("model/position/scaling")]


@pytest.mark.parametrize("rotated", ["1.0", "0.5"])
@pytest.mark.parametrize("scaling", SCALED)
def test_rope_scores_depend_on_differences_only(scaling, rotated):
    scheme = rope(scaling, f"model.position.rotated={rotated}")
    q, k = torch.randn(1, 2, 6, 8), torch.randn(1, 2, 6, 8)

    def scores(shift):
        return scheme.rotate(q, pos + shift) @ scheme.rotate(k, pos + shift).mT

    for shift in (1, 100, 3000):
        torch.testing.assert_close(scores(shift), scores(0), atol=2e-3 if shift > 1000 else 3e-5, rtol=0)
    assert (scheme.rotate(q, pos) @ scheme.rotate(k, pos + 1).mT - scores(0)).abs().max() > 0.1


def test_rope_keeps_lengths_and_yarn_enlarges_what_it_rotates():
    q = torch.randn(1, 2, 6, 8)
    torch.testing.assert_close(rope().rotate(q, pos + 9).norm(dim=-1), q.norm(dim=-1))
    larger = rope("model/position/scaling=yarn", "model.position.rotated=0.5").rotate(q, pos + 9)
    torch.testing.assert_close(larger[..., :4].norm(dim=-1), (0.1 * math.log(4) + 1) * q[..., :4].norm(dim=-1))
    assert torch.equal(larger[..., 4:], q[..., 4:])


def test_rope_turns_feature_i_with_feature_i_plus_half_of_the_rotated_ones():
    x = torch.tensor([3.0, 5.0, 7.0, 11.0]).view(1, 1, 1, 4)
    c, s = [math.cos(2), math.cos(0.02)], [math.sin(2), math.sin(0.02)]
    whole = [3 * c[0] - 7 * s[0], 5 * c[1] - 11 * s[1], 7 * c[0] + 3 * s[0], 11 * c[1] + 5 * s[1]]
    half = [3 * c[0] - 5 * s[0], 5 * c[0] + 3 * s[0], 7.0, 11.0]
    for rotated, expected in (("1.0", whole), ("0.5", half)):
        turned = rope(f"model.position.rotated={rotated}", d_head=4).rotate(x, torch.tensor([[2]]))
        torch.testing.assert_close(turned.flatten(), torch.tensor(expected), atol=1e-5, rtol=0)


THEIR_NAMES = {
    "trained_len": "original_max_position_embeddings",
    "slow_turns": "low_freq_factor",
    "fast_turns": "high_freq_factor",
    "magnitude": "attention_factor",
}


@pytest.mark.parametrize(("d_head", "share"), [(64, 1.0), (64, 0.25), (2, 1.0)])
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("linear", {"factor": 3.0}),
        ("yarn", {"factor": 4.0, "trained_len": 1000}),
        ("yarn", {"factor": 16.0, "trained_len": 5, "beta_fast": 20.0, "beta_slow": 2.0, "magnitude": 1.5}),
        ("llama3", {"factor": 8.0, "trained_len": 700, "slow_turns": 1.0, "fast_turns": 4.0}),
    ],
)
def test_scalings_are_those_of_transformers(name, values, d_head, share):
    rope_utils = pytest.importorskip("transformers.modeling_rope_utils")
    config = pytest.importorskip("transformers").LlamaConfig(
        hidden_size=2 * d_head,
        num_attention_heads=2,
        rope_parameters={
            "rope_type": name,
            "rope_theta": 5000.0,
            "partial_rotary_factor": share,
            **{THEIR_NAMES.get(key, key): value for key, value in values.items()},
        },
    )
    theirs, magnitude = rope_utils.ROPE_INIT_FUNCTIONS[name](config, "cpu")
    scaling = build(parts.node("llama_tiny", f"model/position/scaling={name}").position.scaling, **values)
    mine = scaling(frequencies(int(d_head * share), 5000.0, "cpu"), 5000.0)
    torch.testing.assert_close(mine, theirs, atol=0, rtol=2e-6)
    assert scaling.magnitude == pytest.approx(magnitude)


def test_ntk_scaling_is_rope_with_a_larger_base():
    scaled = rope("model/position/scaling=ntk", "model.position.scaling.factor=5")
    larger = rope(f"model.position.base={10000 * 5 ** (8 / 6)}")
    x = torch.randn(1, 1, 6, 8)
    torch.testing.assert_close(scaled.rotate(x, pos), larger.rotate(x, pos))
    assert scaled.scaling(frequencies(8, 10.0, "cpu"), 10.0)[-1] == pytest.approx(10 ** (-6 / 8) / 5)


@pytest.mark.parametrize(
    ("n_heads", "expected"),
    [
        (1, [1 / 256]),
        (6, [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8]),
        (8, [2.0**-i for i in range(1, 9)]),
        (12, [2.0**-i for i in range(1, 9)] + [2.0 ** -(i + 0.5) for i in range(4)]),
    ],
)
def test_alibi_slopes(n_heads, expected):
    assert slopes(n_heads).tolist() == pytest.approx(expected)


def test_alibi_takes_the_distance_from_each_score():
    scheme = parts.position("alibi", n_heads=8)
    last = scheme.bias(torch.tensor([[5]]), pos)
    assert last.shape == (1, 8, 1, 6)
    assert last[0, 0, 0].tolist() == [-2.5, -2.0, -1.5, -1.0, -0.5, 0.0]
    assert last[0, 7, 0].tolist() == [-i / 256 for i in (5, 4, 3, 2, 1, 0)]
    square = scheme.bias(pos, pos)
    assert torch.equal(square[:, :, -1:], last)
    assert torch.equal(square, square.mT)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (7, 20)])
def test_relative_bias_is_that_of_t5(causal, n_buckets, max_distance):
    modeling = pytest.importorskip("transformers.models.t5.modeling_t5")
    config = pytest.importorskip("transformers").T5Config(
        d_model=16,
        d_kv=4,
        num_heads=4,
        is_decoder=causal,
        relative_attention_num_buckets=n_buckets,
        relative_attention_max_distance=max_distance,
    )
    theirs = modeling.T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    sizes = {"n_buckets": n_buckets, "max_distance": max_distance}
    mine = RelativeBias(d_model=16, d_head=4, n_heads=4, max_len=8, causal=causal, **sizes)
    torch.nn.init.normal_(mine.table.weight)
    theirs.relative_attention_bias.load_state_dict(mine.table.state_dict())
    places = torch.arange(300)[None]
    assert torch.equal(mine.bias(places, places), theirs.compute_bias(300, 300))


@pytest.mark.parametrize("name", [name for name in EVERY_POSITION if "bias" in parts.position(name).uses])
def test_a_bias_reads_places_only(name):
    """A cached step, a packed and a padded row get the entries of the square of places."""
    scheme = parts.position(name)
    square = scheme.bias(torch.arange(9)[None], torch.arange(9)[None])
    q_places, k_places = torch.tensor([[8], [3], [6]]), torch.tensor([[0, 1, 2, 8], [3, 0, 0, 7], [4, 5, 6, 2]])
    step = scheme.bias(q_places, k_places)
    assert step.shape == (3, 4, 1, 4)
    for row in range(3):
        assert torch.equal(step[row, :, 0], square[0, :, q_places[row, 0], k_places[row]])
    assert torch.equal(scheme.bias(q_places + 2 * SEGMENT, k_places + 2 * SEGMENT), step)
    padded = k_places.clone()
    padded[1, 1:3] = -1
    assert torch.equal(scheme.bias(q_places, padded), step)
    assert scheme.to(torch.bfloat16).bias(q_places, k_places).isfinite().all()


def test_learned_places():
    learned = parts.position("learned", max_len=7)
    x = torch.zeros(1, 6, 16)
    assert isinstance(learned, Learned)
    assert learned.limit == 7
    assert torch.equal(learned.embed(x, pos), learned.table.weight[:6][None])


@pytest.mark.parametrize(
    "values", [{"d_head": 3}, {"base": 1.0}, {"base": -2.0}, {"base": math.nan}, {"base": math.inf}]
)
def test_what_rope_cannot_do_is_refused(values):
    sizes = {"d_model": 8, "d_head": 4, "n_heads": 2, "max_len": 8, "causal": True, "scaling": NoScaling()}
    with pytest.raises(ConfigError, match="even d_head, got 3" if "d_head" in values else "base"):
        Rope(**(sizes | values))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.position.rotated=0.4"], "rotated=0.4 turns 3 of d_head=8 features, which must be an even number"),
        (["model.position.rotated=0.1"], "turns 0 of d_head=8"),
        (["model.position.rotated=1.5"], "share above 0, up to 1 for all features; got 1.5"),
        (["model/position/scaling=linear", "model.position.scaling.factor=0.5"], "at least 1, got 0.5"),
        (["model/position/scaling=yarn", "model.position.scaling.beta_slow=40"], "beta_slow .* below beta_fast"),
        (["model/position/scaling=llama3", "model.position.scaling.fast_turns=0.5"], "slow_turns .* below fast_turns"),
        (["model/position=relative_bias", "model.position.n_buckets=1"], "at least 2: 32 is usual"),
        (["model/position=relative_bias", "model.position.max_distance=16"], "must be above 16"),
    ],
)
def test_what_a_position_cannot_do_is_refused(overrides, message):
    with pytest.raises(ConfigError, match=message):
        rope(*overrides)


@pytest.mark.parametrize("name", parts.options("model/position"))
def test_layers_share_what_depends_on_the_positions_alone(name, monkeypatch):
    model = parts.model("gpt_tiny", f"model/position={name}", "model.n_layers=3")
    made = []
    for hook in ("turns", "bias"):
        usual = getattr(model.position, hook)
        monkeypatch.setattr(model.position, hook, lambda *a, u=usual, h=hook: made.append(h) or u(*a))
    ids = torch.randint(65, (2, 6))
    together = model(ids)
    assert made == [hook for hook in ("turns", "bias") if {"turns": "rotate"}.get(hook, hook) in model.position.uses]
    # the same where every layer asks for itself
    for layer in model.layers:
        layer.position = model.position
    assert torch.equal(model(ids), together)
