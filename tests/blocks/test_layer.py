import parts
import pytest
import torch

from minitf.blocks.layer.post_norm import PostNormLayer
from minitf.blocks.layer.pre_norm import PreNormLayer
from minitf.cache.dynamic import Dynamic
from minitf.config import build
from minitf.errors import ConfigError


def layer(name, *overrides):
    """A layer with biases everywhere and gains that are not 1."""
    torch.manual_seed(0)
    biased = {"attention": "model.attention.projection.bias=true", "ffn": "model.ffn.bias=true"}
    values = [value for part, value in biased.items() if f"model/{part}=none" not in overrides]
    made = parts.node("gpt_tiny", f"model/layer={name}", *values, *overrides)
    block = build(made.layer)(
        d_model=16,
        attention=build(made.attention)(d_model=16, mask=build(made.mask)),
        ffn=build(made.ffn)(d_model=16),
        norm=build(made.norm),
        dropout=0.0,
    )
    with torch.no_grad():
        for p in block.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return block.eval()


def read(block, x):
    """Attention alone."""
    how = {"pos": torch.arange(x.size(1))[None], "plain": True, "position": parts.position("none")}
    return block.attention(x, **how)


def forward(block, x, pos=None):
    plain = pos is None
    pos = torch.arange(x.size(1))[None] if plain else pos
    return block(x, pos=pos, plain=plain, position=parts.position("none"))


def with_skip(block, x, sublayer, norm, factor):
    """One sublayer by its formula."""
    if isinstance(block, PostNormLayer):
        return norm(factor * x + sublayer(x))
    if isinstance(block, PreNormLayer):
        return factor * x + sublayer(norm(x))
    return factor * x + norm[1](sublayer(norm[0](x)))


@pytest.mark.parametrize("name", parts.options("model/layer"))
@pytest.mark.parametrize(("attention", "ffn"), [(1.0, 1.0), (0.0, 1.0), (1.0, 0.0), (0.0, 0.0), (0.5, 2.0)])
def test_each_residual_factor_acts_on_its_own_skip(name, attention, ffn):
    block = layer(name, f"model.layer.attention_residual={attention}", f"model.layer.ffn_residual={ffn}")
    x = torch.randn(1, 4, 16)
    middle = with_skip(block, x, lambda y: read(block, y), block.attention_norm, attention)
    torch.testing.assert_close(forward(block, x), with_skip(block, middle, block.ffn, block.ffn_norm, ffn))


@pytest.mark.parametrize("name", parts.options("model/layer"))
def test_a_factor_of_zero_removes_the_skip(name):
    """Where the only sublayer writes nothing, the skip is all there is."""
    x = torch.randn(1, 4, 16)
    for factor in ("0.0", "1.0"):
        block = layer(name, "model/ffn=none", f"model.layer.attention_residual={factor}", "model/norm=none")
        torch.nn.init.zeros_(block.attention.projection.w_o.weight)
        torch.nn.init.zeros_(block.attention.projection.w_o.bias)
        assert torch.equal(forward(block, x), float(factor) * x)


@pytest.mark.parametrize("name", parts.options("model/layer"))
def test_a_sublayer_that_is_none_is_left_out_with_its_norm(name):
    x = torch.randn(1, 4, 16)
    alone = layer(name, "model/ffn=none")
    expected = with_skip(alone, x, lambda y: read(alone, y), alone.attention_norm, 1.0)
    torch.testing.assert_close(forward(alone, x), expected)
    silent = layer(name, "model/attention=none")
    torch.testing.assert_close(forward(silent, x), with_skip(silent, x, silent.ffn, silent.ffn_norm, 1.0))
    assert alone.n_writes == silent.n_writes == 1
    assert alone.ffn_norm is silent.attention_norm is silent.cross_norm is None
    nothing = layer(name, "model/attention=none", "model/ffn=none")
    assert forward(nothing, x) is x
    assert nothing.n_writes == 0


@pytest.mark.parametrize("name", parts.options("model/layer"))
def test_dropout_acts_on_both_sublayers_while_training(name):
    block = layer(name)
    x = torch.randn(1, 4, 16)
    expected = forward(block, x)
    block.dropout.p = 0.5
    assert torch.equal(forward(block, x), expected)
    block.train()
    block.dropout.p = 1.0  # nothing of either sublayer is left
    y = forward(block, x)
    bare = block.ffn_norm(block.attention_norm(x)) if isinstance(block, PostNormLayer) else x
    torch.testing.assert_close(y, bare)


def test_a_dropout_that_is_no_probability_is_refused():
    with pytest.raises(ConfigError, match=r"dropout is a probability .* got 1.5"):
        build(parts.node("gpt_tiny", "model.dropout=1.5"))


def jacobian_reach(model, x):
    """bool (T,T): whether the output at t depends on the input at s."""
    x = x.clone().requires_grad_()
    y = model.run(x, None)
    rows = [torch.autograd.grad(y[0, t].square().sum(), x, retain_graph=True)[0][0] for t in range(x.size(1))]
    return torch.stack(rows).abs().sum(-1) > 0


@pytest.mark.parametrize("ffn", [name for name in parts.options("model/ffn") if name != "none"])
@pytest.mark.parametrize("position", ["none", "learned", "sinusoidal"])
def test_without_attention_no_token_reads_another(ffn, position):
    x = torch.randn(1, 6, 16)
    choice = [f"model/ffn={ffn}", f"model/position={position}", "model/mask=full"]
    assert torch.equal(jacobian_reach(parts.model("gpt_tiny", "model/attention=none", *choice), x), torch.eye(6).bool())
    assert jacobian_reach(parts.model("gpt_tiny", *choice), x).all()


def test_without_attention_cached_steps_know_their_places():
    model, ids = parts.model("gpt_tiny", "model/attention=none", "model/position=sinusoidal"), torch.randint(65, (2, 7))
    caches = model.new_caches(Dynamic)
    pieces = [model(ids[:, a:b], caches=caches) for a, b in ((0, 3), (3, 4), (4, 7))]
    torch.testing.assert_close(torch.cat(pieces, 1), model(ids))
    assert caches[0].n_seen == 7
    assert caches[0].n_bytes == 0


@pytest.mark.parametrize(("position", "hook"), [("rope", "rotate"), ("alibi", "bias"), ("relative_bias", "bias")])
def test_without_attention_nothing_can_be_rotated_or_biased(position, hook):
    message = rf"works by \['{hook}'\], but model/attention=none takes only \['embed'\]"
    with pytest.raises(ConfigError, match=message):
        build(parts.node("gpt_tiny", "model/attention=none", f"model/position={position}"))
