"""The presets are the published architectures: the same weights give the logits of transformers' own models."""

import parts
import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from minitf.cache.dynamic import Dynamic


def copy_into(target, **named):
    """Copy tensors by dotted name, and fail unless every parameter was given."""
    own = dict(target.named_parameters())
    assert set(own) == set(named)
    with torch.no_grad():
        for name, value in named.items():
            assert own[name].shape == value.shape, name
            own[name].copy_(value)


def shake(model):
    """Move gains and biases off 1 and 0, so that none can be forgotten."""
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 1:
                p.add_(0.3 * torch.randn_like(p))


def gpt2():
    torch.manual_seed(0)
    sizes = {"vocab_size": 65, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 4}
    theirs = GPT2LMHeadModel(GPT2Config(**sizes, activation_function="gelu", initializer_range=0.3)).eval()
    shake(theirs)
    t, named = theirs.transformer, {}
    for i, block in enumerate(t.h):
        # GPT-2 keeps (in, out) and q, k, v side by side
        matrices = zip("qkv", block.attn.c_attn.weight.T.chunk(3), block.attn.c_attn.bias.chunk(3), strict=True)
        layer = {f"attention.projection.w_{n}": (w, b) for n, w, b in matrices}
        layer["attention.projection.w_o"] = (block.attn.c_proj.weight.T, block.attn.c_proj.bias)
        layer["ffn.w_in"] = (block.mlp.c_fc.weight.T, block.mlp.c_fc.bias)
        layer["ffn.w_out"] = (block.mlp.c_proj.weight.T, block.mlp.c_proj.bias)
        layer["attention_norm"] = (block.ln_1.weight, block.ln_1.bias)
        layer["ffn_norm"] = (block.ln_2.weight, block.ln_2.bias)
        for name, (weight, bias) in layer.items():
            named |= {f"layers.{i}.{name}.weight": weight, f"layers.{i}.{name}.bias": bias}
    named |= {"embedding.weight": t.wte.weight, "position.table.weight": t.wpe.weight}
    named |= {"final_norm.weight": t.ln_f.weight, "final_norm.bias": t.ln_f.bias}
    ours = parts.model("gpt2_tiny")
    copy_into(ours, **named)
    return ours, theirs


def like_llama(preset, model, config, *overrides, **special):
    """Ours and theirs for what is built as Llama is."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 65, "hidden_size": 16, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32}
    common = {"tie_word_embeddings": True, "rms_norm_eps": 1e-5, "initializer_range": 0.3}
    theirs = model(config(**sizes, **heads, **common, **special)).eval()
    shake(theirs)
    ours = parts.model(preset, *overrides)
    named = {"embedding.weight": theirs.model.embed_tokens.weight, "final_norm.weight": theirs.model.norm.weight}
    for i, block in enumerate(theirs.model.layers):
        layer = {f"attention.projection.w_{n}": getattr(block.self_attn, f"{n}_proj").weight for n in "qkvo"}
        if hasattr(block.self_attn, "q_norm"):
            layer |= {f"attention.{n}_norm": getattr(block.self_attn, f"{n}_norm").weight for n in "qk"}
        layer |= {"ffn.w_gate": block.mlp.gate_proj.weight, "ffn.w_in": block.mlp.up_proj.weight}
        layer |= {"ffn.w_out": block.mlp.down_proj.weight}
        layer |= {"attention_norm": block.input_layernorm.weight, "ffn_norm": block.post_attention_layernorm.weight}
        named |= {f"layers.{i}.{name}.weight": weight for name, weight in layer.items()}
    copy_into(ours, **named)
    return ours, theirs


def llama():
    return like_llama("llama_tiny", LlamaForCausalLM, LlamaConfig)


def mistral():
    return like_llama("mistral_tiny", MistralForCausalLM, MistralConfig, "model.mask.window=4", sliding_window=4)


def qwen3():
    eps = ("model.attention.qk_norm.eps=1e-5", "model.attention.d_head=6")  # theirs has one eps for all norms
    return like_llama("qwen3_tiny", Qwen3ForCausalLM, Qwen3Config, *eps, head_dim=6)


@pytest.fixture(scope="module", params=[gpt2, llama, mistral, qwen3], ids=lambda f: f.__name__)
def twins(request):
    return request.param()


@torch.no_grad()
def test_same_logits(twins):
    ours, theirs = twins
    ids = torch.randint(65, (3, 20))
    expected = theirs(ids).logits
    assert expected.abs().max() > 1  # nothing may hide in tiny logits
    torch.testing.assert_close(ours(ids), expected, atol=1e-5, rtol=0)


@torch.no_grad()
def test_same_logits_left_padded_and_token_by_token(twins):
    ours, theirs = twins
    ids, pos = torch.randint(65, (3, 12)), parts.padded([12, 9, 3], "left")
    real = pos >= 0
    expected = theirs(ids, attention_mask=real.long(), position_ids=pos.clamp_min(0)).logits
    torch.testing.assert_close(ours(ids, pos)[real], expected[real], atol=1e-5, rtol=0)
    caches = ours.new_caches(Dynamic)
    pieces = [ours(ids[:, :5], pos[:, :5], caches)]
    pieces += [ours(ids[:, i : i + 1], pos[:, i : i + 1], caches) for i in range(5, 12)]
    torch.testing.assert_close(torch.cat(pieces, 1)[real], expected[real], atol=1e-5, rtol=0)


def test_same_gradient(twins):
    ours, theirs = twins
    ids = torch.randint(65, (2, 10))
    for model in twins:
        model.zero_grad()
    torch.nn.functional.cross_entropy(ours(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
    theirs(ids, labels=ids).loss.backward()
    embedding = theirs.get_input_embeddings().weight
    torch.testing.assert_close(ours.embedding.weight.grad, embedding.grad, atol=1e-5, rtol=0)
