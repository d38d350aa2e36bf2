"""The copy of a model that decodes faster computes the same."""

import parts
import pytest
import torch
from torch import nn

from minitf.cache.dynamic import Dynamic
from minitf.errors import ConfigError
from minitf.generation.generate import generate
from minitf.generation.one_token import OneTokenAttention
from minitf.generation.prepare import prepare_decode
from minitf.generation.sampling import Greedy
from minitf.tap import Tap

SAMPLES = [
    ["model=gpt_tiny"],
    ["model=gpt2_tiny"],
    ["model=llama_tiny", "model/attention=gqa"],
    ["model=qwen3_tiny"],
    ["model=mixed_tiny"],
    ["model=gpt_tiny", "model/init=sigma_reparam", "model.tie_embeddings=false"],
    ["model=gpt_tiny", "model.attention.d_value=3", "model/ffn=geglu", "model.ffn.bias=true"],
    *(["model=gpt_tiny", f"model/attention/projection={name}"] for name in parts.options("model/attention/projection")),
]


class CompileCounter:
    """Counts the graphs that torch.compile makes meanwhile."""

    def __enter__(self):
        torch._dynamo.utils.counters.clear()
        return self

    def __exit__(self, *exc):
        self.n = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        self.breaks = dict(torch._dynamo.utils.counters["graph_break"])


def names(sample):
    return "-".join(override.split("=")[-1] for override in sample)


@pytest.mark.parametrize("sample", SAMPLES, ids=names)
def test_the_copy_gives_the_same_logits(sample):
    preset = sample[0].split("=")[1]
    model = parts.model(preset, *sample[1:], scale=4.0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    fast = prepare_decode(model)
    ids, pos = torch.randint(65, (2, 9)), parts.padded([9, 5], "left")
    with torch.no_grad():
        for where in (None, pos):
            torch.testing.assert_close(fast(ids, where), model(ids, where), atol=2e-5, rtol=1e-5)
        caches, own = fast.new_caches(Dynamic), model.new_caches(Dynamic)
        for piece in (ids[:, :4], ids[:, 4:5], ids[:, 5:]):
            torch.testing.assert_close(
                fast.step(piece, None, caches), model.step(piece, None, own), atol=2e-5, rtol=1e-5
            )
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_copy_of_a_model_with_a_source_gives_the_same_logits():
    model = parts.model("encdec_tiny", scale=4.0)
    fast = prepare_decode(model)
    src, ids, src_pos = torch.randint(65, (2, 7)), torch.randint(65, (2, 5)), parts.padded([7, 4], "right")
    with torch.no_grad():
        torch.testing.assert_close(fast(src, src_pos, ids), model(src, src_pos, ids), atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", [name for name in parts.options("cache") if name != "none"])
@pytest.mark.parametrize("changes", [["model/attention=gqa"], ["model/position=alibi"], ["model/mask=sliding_window"]])
def test_single_tokens_read_any_cache_alike(kind, changes):
    model = parts.model("llama_tiny", *changes, scale=4.0)
    fast = prepare_decode(model)
    assert all(isinstance(layer.attention, OneTokenAttention) for layer in fast.layers)
    ids, make = torch.randint(65, (2, 12)), lambda: reading_less(kind)
    for padded in (None, parts.padded([12, 7], "left")):
        both = [(one, one.new_caches(make)) for one in (model, fast)]
        for i in range(12):
            where = None if padded is None else padded[:, i : i + 1]
            with torch.no_grad():
                logits = [one.step(ids[:, i : i + 1], where, caches) for one, caches in both]
            torch.testing.assert_close(*logits, atol=2e-5, rtol=1e-5)


def reading_less(kind):
    """A small cache that need not keep all that a model reads."""
    cache = parts.caches(kind)()
    if cache.keeps is not None:
        cache.exact = False
    return cache


def test_weights_are_stored_by_input_and_joined():
    model = parts.model("llama_tiny")
    fast = prepare_decode(model)
    linears = [module for module in fast.modules() if isinstance(module, nn.Linear)]
    assert all(linear.weight.t().is_contiguous() for linear in linears)
    assert len(linears) == 2 * 4 + 1  # in each layer q, k and v together, w_o, both inner ones of the network, w_out
    assert sum(linear.weight.numel() for linear in linears) == sum(
        module.weight.numel() for module in model.modules() if isinstance(module, nn.Linear)
    )


def test_heads_of_the_copy_can_be_looked_into():
    model = parts.model("llama_tiny", scale=4.0)
    fast, ids = prepare_decode(model), torch.randint(65, (1, 6))
    seen = []
    for one in (model, fast):
        with Tap(one, at=["layers.1.attention.weights"]) as tap, torch.no_grad():
            one(ids)
        seen.append(tap["layers.1.attention.weights"])
    torch.testing.assert_close(*seen, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_the_compiled_step_is_one_graph_and_gives_the_same_text():
    model = parts.model("llama_tiny", "model/attention=gqa", scale=4.0)
    compiled, make, prompt = prepare_decode(model, compile=True), parts.caches("static"), torch.randint(65, (1, 6))
    torch.compiler.reset()
    texts = []
    with CompileCounter() as graphs:
        for one, caches in ((model, None), (compiled, True), (compiled, True)):
            caches = None if caches is None else one.new_caches(make)
            steps = generate(one, prompt, caches=caches, sampler=Greedy(), max_new_tokens=16)
            texts.append([int(step.ids[0]) for step in steps])
    assert texts[0] == texts[1] == texts[2]
    assert graphs.n == 2  # for the first length, then for any
    assert not graphs.breaks


def test_a_model_with_a_loop_is_not_compiled():
    with pytest.raises(ConfigError, match="loop over tokens"):
        prepare_decode(parts.model("gru_none"), compile=True)
