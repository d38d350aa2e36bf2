import parts
import pytest
import torch
from torch import nn

from minitf.blocks.layer.post_norm import PostNormLayer
from minitf.blocks.layer.pre_norm import PreNormLayer
from minitf.config import build
from minitf.errors import ConfigError


def layer(name, *overrides):
    """A layer with biases everywhere and gains that are not 1."""
    torch.manual_seed(0)
    biased = ["model.attention.projection.bias=true", "model.ffn.bias=true", "model.ffn.d_ff=24"]
    made = parts.node("gpt_tiny", f"model/layer={name}", *biased, *overrides)
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


def forward(block, x, pos=None):
    plain = pos is None
    pos = torch.arange(x.size(1))[None] if plain else pos
    return block(x, pos=pos, plain=plain, position=parts.position("none"))


@pytest.mark.parametrize(("name", "norm_first"), [("pre_norm", True), ("post_norm", False)])
@pytest.mark.parametrize("ffn", ["relu", "gelu"])
@pytest.mark.parametrize("side", parts.PADDINGS)
def test_a_layer_is_torchs_encoder_layer(name, norm_first, ffn, side):
    block = layer(name, f"model/ffn={ffn}", "model/mask=causal")
    theirs = nn.TransformerEncoderLayer(16, 4, 24, 0.0, ffn, batch_first=True, norm_first=norm_first)
    p = block.attention.projection
    with torch.no_grad():
        theirs.self_attn.in_proj_weight.copy_(torch.cat([p.w_q.weight, p.w_k.weight, p.w_v.weight]))
        theirs.self_attn.in_proj_bias.copy_(torch.cat([p.w_q.bias, p.w_k.bias, p.w_v.bias]))
    for mine, other in (
        (p.w_o, theirs.self_attn.out_proj),
        (block.ffn.w_in, theirs.linear1),
        (block.ffn.w_out, theirs.linear2),
        (block.attention_norm, theirs.norm1),
        (block.ffn_norm, theirs.norm2),
    ):
        other.load_state_dict(mine.state_dict())
    x, pos = torch.randn(2, 7, 16), parts.padded([7, 4], side)
    real = torch.ones(2, 7).bool() if pos is None else pos >= 0
    expected = theirs(x, src_mask=torch.ones(7, 7).triu(1).bool(), src_key_padding_mask=~real)
    torch.testing.assert_close(forward(block, x, pos)[real], expected[real], atol=1e-5, rtol=0)


def test_residual_factors_act_on_their_own_skip():
    x = torch.randn(1, 4, 16)
    how = {"pos": torch.arange(4)[None], "plain": True, "position": parts.position("none")}
    for a, f in ((0.0, 1.0), (1.0, 0.0), (0.5, 2.0)):
        factors = [f"model.layer.attention_residual={a}", f"model.layer.ffn_residual={f}"]
        pre, post = layer("pre_norm", *factors), layer("post_norm", *factors)
        middle = a * x + pre.attention(pre.attention_norm(x), **how)
        torch.testing.assert_close(forward(pre, x), f * middle + pre.ffn(pre.ffn_norm(middle)))
        middle = post.attention_norm(a * x + post.attention(x, **how))
        torch.testing.assert_close(forward(post, x), post.ffn_norm(f * middle + post.ffn(middle)))


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
    bare = {PreNormLayer: lambda: x, PostNormLayer: lambda: block.ffn_norm(block.attention_norm(x))}
    torch.testing.assert_close(y, bare[type(block)]())


def test_a_dropout_that_is_no_probability_is_refused():
    with pytest.raises(ConfigError, match=r"dropout is a probability .* got 1.5"):
        build(parts.node("gpt_tiny", "model.dropout=1.5"))
