"""BERT, T5 and torch's own Transformer: the same weights give the same logits."""

import math

import parts
import pytest
import torch
from test_parity import copy_into, shake
from torch import nn
from transformers import BertConfig, BertForMaskedLM, T5Config, T5ForConditionalGeneration

from minitf.cache.dynamic import Dynamic

SIDES = ["none", "left", "right"]


def weight_and_bias(**pairs):
    """Names and tensors of modules that have both; __ stands for a dot."""
    return {
        f"{name.replace('__', '.')}.{kind}": getattr(m, kind)
        for name, m in pairs.items()
        for kind in ("weight", "bias")
    }


def close(a, b):
    assert b.abs().max() > 1  # nothing may hide in tiny logits
    torch.testing.assert_close(a, b, atol=1e-5, rtol=0)


# --- BERT ---


def bert():
    torch.manual_seed(0)
    sizes = {"vocab_size": 65, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
    more = {"intermediate_size": 64, "max_position_embeddings": 32, "layer_norm_eps": 1e-5, "initializer_range": 0.3}
    theirs = BertForMaskedLM(BertConfig(**sizes, **more)).eval()
    shake(theirs)
    ours = parts.model("bert_tiny")
    e, head = theirs.bert.embeddings, theirs.cls.predictions
    # we have no token types: what theirs adds for type 0 at every place goes into the table of places
    places = e.position_embeddings.weight + e.token_type_embeddings.weight[0]
    named = {"embedding.weight": e.word_embeddings.weight, "position.table.weight": places, "head.bias": head.bias}
    transform = {"head__dense": head.transform.dense, "head__norm": head.transform.LayerNorm}
    named |= weight_and_bias(embedding_norm=e.LayerNorm, **transform)
    for i, block in enumerate(theirs.bert.encoder.layer):
        own, out = block.attention.self, block.attention.output
        layer = {"w_q": own.query, "w_k": own.key, "w_v": own.value, "w_o": out.dense}
        layer = {f"attention__projection__{name}": m for name, m in layer.items()}
        layer |= {"attention_norm": out.LayerNorm, "ffn_norm": block.output.LayerNorm}
        layer |= {"ffn__w_in": block.intermediate.dense, "ffn__w_out": block.output.dense}
        named |= weight_and_bias(**{f"layers__{i}__{name}": m for name, m in layer.items()})
    copy_into(ours, **named)
    return ours, theirs


@torch.no_grad()
@pytest.mark.parametrize("side", SIDES)
def test_bert_tiny_is_bert(side):
    ours, theirs = bert()
    ids, pos = torch.randint(65, (3, 12)), parts.padded([12, 9, 3], side)
    real = torch.ones(3, 12).bool() if pos is None else pos >= 0
    places = torch.arange(12).expand(3, 12) if pos is None else pos.clamp_min(0)
    expected = theirs(ids, attention_mask=real.long(), position_ids=places).logits
    close(ours(ids, pos)[real], expected[real])


# --- T5 ---


def t5():
    torch.manual_seed(0)
    sizes = {"vocab_size": 65, "d_model": 16, "d_kv": 4, "d_ff": 64, "num_layers": 2, "num_heads": 4}
    buckets = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 10}
    config = T5Config(**sizes, **buckets, layer_norm_epsilon=1e-5, feed_forward_proj="relu", tie_word_embeddings=True)
    theirs = T5ForConditionalGeneration(config).eval()
    shake(theirs)
    ours = parts.model("t5_tiny", "model.position.n_buckets=8", "model.position.max_distance=10")
    named = {"embedding.weight": theirs.shared.weight}
    for stack, other in {"encoder": theirs.encoder, "decoder": theirs.decoder}.items():
        named[f"{stack}.final_norm.weight"] = other.final_layer_norm.weight
        table = other.block[0].layer[0].SelfAttention.relative_attention_bias
        with torch.no_grad():
            table.weight.mul_(4)
        named[f"{stack}.position.table.weight"] = table.weight
        for i, block in enumerate(other.block):
            first, *cross, last = block.layer
            layer = {f"attention.projection.w_{n}": getattr(first.SelfAttention, n) for n in "qkvo"}
            layer |= {"attention_norm": first.layer_norm, "ffn_norm": last.layer_norm}
            layer |= {"ffn.w_in": last.DenseReluDense.wi, "ffn.w_out": last.DenseReluDense.wo}
            for reads in cross:
                layer |= {f"cross_attention.projection.w_{n}": getattr(reads.EncDecAttention, n) for n in "qkvo"}
                layer["cross_norm"] = reads.layer_norm
            named |= {f"{stack}.layers.{i}.{name}.weight": m.weight for name, m in layer.items()}
    copy_into(ours, **named)
    return ours, theirs


@torch.no_grad()
@pytest.mark.parametrize("side", SIDES)
def test_t5_tiny_is_t5(side):
    ours, theirs = t5()
    src, ids, src_pos = torch.randint(65, (3, 24)), torch.randint(65, (3, 20)), parts.padded([24, 9, 3], side)
    real = torch.ones(3, 24).bool() if src_pos is None else src_pos >= 0
    expected = theirs(input_ids=src, attention_mask=real.long(), decoder_input_ids=ids).logits
    close(ours(src, src_pos, ids), expected)
    memory, caches = ours.encode(src, src_pos), ours.new_caches(Dynamic)
    steps = [ours.step(ids[:, i : i + 1], None, caches, memory, src_pos) for i in range(20)]
    close(torch.stack(steps, 1), expected)


# --- the first Transformer ---


def vaswani():
    """Ours with biases in attention too, because torch's module has either all biases or none."""
    torch.manual_seed(0)
    theirs = nn.Transformer(16, 4, 2, 2, 64, dropout=0.0, batch_first=True, norm_first=False).eval()
    theirs.encoder.norm = theirs.decoder.norm = None  # a second norm after the last layer, which the paper has not
    theirs.encoder.use_nested_tensor = False  # warns, and is no part of the definition
    shake(theirs)
    ours = parts.model("vaswani_tiny", "model.attention.projection.bias=true")
    table = 0.5 * torch.randn(65, 16)
    named = {"embedding.weight": table}
    for stack, other in {"encoder": theirs.encoder, "decoder": theirs.decoder}.items():
        for i, block in enumerate(other.layers):
            attention = {"attention": block.self_attn}
            norms = ["attention_norm", "ffn_norm"]
            if stack == "decoder":
                attention["cross_attention"] = block.multihead_attn
                norms.insert(1, "cross_norm")
            layer = {name: getattr(block, f"norm{n}") for n, name in enumerate(norms, start=1)}
            layer |= {"ffn__w_in": block.linear1, "ffn__w_out": block.linear2}
            for name, m in attention.items():
                layer[f"{name}__projection__w_o"] = m.out_proj
                for n, w, b in zip("qkv", m.in_proj_weight.chunk(3), m.in_proj_bias.chunk(3), strict=True):
                    at = f"{stack}.layers.{i}.{name}.projection.w_{n}"
                    named |= {f"{at}.weight": w, f"{at}.bias": b}
            named |= weight_and_bias(**{f"{stack}__layers__{i}__{name}": m for name, m in layer.items()})
    copy_into(ours, **named)
    return ours, theirs, table


def embedded(table, ids, pos):
    """Vaswani et al. 2017, sections 3.4 and 3.5, by the letter."""
    place = (torch.arange(ids.size(1)) if pos is None else pos.clamp_min(0))[..., None] * 1.0
    angle = place / 10000 ** (torch.arange(0, 16, 2) / 16)
    return table[ids] * math.sqrt(16) + torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)


@torch.no_grad()
@pytest.mark.parametrize("side", SIDES)
def test_vaswani_tiny_is_torchs_transformer(side):
    ours, theirs, table = vaswani()
    src, ids, later = torch.randint(65, (3, 9)), torch.randint(65, (3, 7)), torch.ones(7, 7).triu(1).bool()
    src_pos = parts.padded([9, 4, 2], side)
    pos = None if side == "none" else parts.padded([7, 3, 6], "right")  # left: theirs is nan where nothing can be read
    absent = torch.zeros(3, 9).bool() if src_pos is None else src_pos < 0
    real = torch.ones(3, 7).bool() if pos is None else pos >= 0
    masks = {"src_key_padding_mask": absent, "memory_key_padding_mask": absent, "tgt_key_padding_mask": ~real}
    x = theirs(embedded(table, src, src_pos), embedded(table, ids, pos), tgt_mask=later, **masks)
    close(ours(src, src_pos, ids, pos)[real], (x @ table.T)[real])
