"""Layers against those of torch, weights copied."""

import parts
import pytest
import torch
from torch import nn

from minitf.config import build

SIZES = {"d_model": 16, "nhead": 4, "dim_feedforward": 24, "dropout": 0.0, "batch_first": True}
NORM_FIRST = {"pre_norm": True, "post_norm": False}


def layer(name, ffn, mask, cross=False):
    """One of our layers, with biases everywhere and gains that are not 1."""
    torch.manual_seed(0)
    biased = ["model.attention.projection.bias=true", "model.ffn.bias=true", "model.ffn.d_ff=24"]
    made = parts.node("gpt_tiny", f"model/layer={name}", f"model/ffn={ffn}", f"model/mask={mask}", *biased)
    attention = build(made.attention)
    mask = build(made.mask)
    block = build(made.layer)(
        d_model=16,
        attention=attention(d_model=16, mask=mask),
        cross_attention=attention(d_model=16, mask=mask) if cross else None,
        ffn=build(made.ffn)(d_model=16),
        norm=build(made.norm),
        dropout=0.0,
    )
    with torch.no_grad():
        for p in block.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return block.eval()


def copy_attention(mine, theirs):
    p = mine.projection
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([p.w_q.weight, p.w_k.weight, p.w_v.weight]))
        theirs.in_proj_bias.copy_(torch.cat([p.w_q.bias, p.w_k.bias, p.w_v.bias]))
    theirs.out_proj.load_state_dict(p.w_o.state_dict())


def copy_rest(mine, theirs, norms):
    for own, other in zip((mine.ffn.w_in, mine.ffn.w_out), (theirs.linear1, theirs.linear2), strict=True):
        other.load_state_dict(own.state_dict())
    for i, norm in enumerate(norms, 1):
        getattr(theirs, f"norm{i}").load_state_dict(norm.state_dict())


def run(block, x, pos, **source):
    plain = pos is None
    pos = torch.arange(x.size(1))[None] if plain else pos
    return block(x, pos=pos, plain=plain, position=parts.position("none"), **source)


def real(pos, shape):
    return torch.ones(shape).bool() if pos is None else pos >= 0


def close(mine, theirs, where):
    torch.testing.assert_close(mine[where], theirs[where], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", NORM_FIRST)
@pytest.mark.parametrize("ffn", ["relu", "gelu"])
@pytest.mark.parametrize("mask", ["full", "causal"])
@pytest.mark.parametrize("side", parts.PADDINGS)
def test_encoder_layer(name, ffn, mask, side):
    block = layer(name, ffn, mask)
    theirs = nn.TransformerEncoderLayer(**SIZES, activation=ffn, norm_first=NORM_FIRST[name])
    copy_attention(block.attention, theirs.self_attn)
    copy_rest(block, theirs, [block.attention_norm, block.ffn_norm])
    x, pos = torch.randn(2, 7, 16), parts.padded([7, 4], side)
    known = real(pos, (2, 7))
    hidden = torch.ones(7, 7).triu(1).bool() if mask == "causal" else None
    close(run(block, x, pos), theirs(x, src_mask=hidden, src_key_padding_mask=~known), known)


@pytest.mark.parametrize("name", NORM_FIRST)
@pytest.mark.parametrize("ffn", ["relu", "gelu"])
@pytest.mark.parametrize("side", parts.PADDINGS)
@pytest.mark.parametrize("source_side", parts.PADDINGS)
def test_decoder_layer(name, ffn, side, source_side):
    block = layer(name, ffn, "causal", cross=True)
    theirs = nn.TransformerDecoderLayer(**SIZES, activation=ffn, norm_first=NORM_FIRST[name])
    copy_attention(block.attention, theirs.self_attn)
    copy_attention(block.cross_attention, theirs.multihead_attn)
    copy_rest(block, theirs, [block.attention_norm, block.cross_norm, block.ffn_norm])
    x, pos = torch.randn(2, 7, 16), parts.padded([7, 4], side)
    memory, memory_pos = torch.randn(2, 9, 16), parts.padded([5, 9], source_side)
    known, source_known = real(pos, (2, 7)), real(memory_pos, (2, 9))
    expected = theirs(
        x,
        memory,
        tgt_mask=torch.ones(7, 7).triu(1).bool(),
        tgt_key_padding_mask=~known,
        memory_key_padding_mask=~source_known,
    )
    close(run(block, x, pos, memory=memory, memory_pos=memory_pos), expected, known)
    assert (run(block, x, pos, memory=-memory, memory_pos=memory_pos) - expected)[known].abs().max() > 0.1
