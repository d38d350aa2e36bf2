"""Writers to be timed: minitf and transformers' Llama, of one shape and with the same weights."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from minitf.bench.timing import Clock
from minitf.config import build, compose
from minitf.errors import ConfigError
from minitf.generation.generate import generate
from minitf.generation.sampling import Greedy

NORM_EPS = 1e-5  # of minitf's RMSNorm; transformers has another default
MAX_LEN = 2048  # what rotary positions are told; they have no end
WARM_UP = 2  # tokens of each text that are not counted: the first one reads the prompt


@dataclass(frozen=True)
class LlamaShape:
    """Size of the models that are compared."""

    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_model: int
    d_ff: int
    vocab_size: int


@dataclass
class Written:
    """A text, and when each of its tokens was there.

    Attributes:
        ids: (B,N) new tokens.
        times: the clock after each of the N steps.
    """

    ids: Tensor
    times: list[float]

    @property
    def seconds_per_step(self) -> float:
        """Mean over the steps behind the warm-up."""
        return (self.times[-1] - self.times[WARM_UP - 1]) / (len(self.times) - WARM_UP)


Writer = Callable[[Tensor, int], Written]


def require_libraries() -> None:
    """Raise ConfigError if transformers or matplotlib is not installed."""
    missing = [name for name in ("transformers", "matplotlib") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"bench=decode needs {' and '.join(missing)}: pip install -e '.[bench]'")


def minitf_config(shape: LlamaShape, attention: str = "gqa") -> DictConfig:
    """The preset llama_tiny in another shape, with any option of model/attention."""
    sizes = {"vocab_size": shape.vocab_size, "max_len": MAX_LEN, "d_model": shape.d_model, "n_layers": shape.n_layers}
    sizes |= {"ffn.d_ff": shape.d_ff, "attention.n_heads": shape.n_heads}
    if attention == "gqa":
        sizes["attention.n_kv_heads"] = shape.n_kv_heads
    # the preset alone, because that composes in a third of the time
    typed = [f"model/attention={attention}", *(f"model.{key}={size}" for key, size in sizes.items())]
    return compose("model/llama_tiny", typed).model


def minitf_model(shape: LlamaShape) -> nn.Module:
    """minitf's side of the comparison."""
    torch.manual_seed(0)
    return build(minitf_config(shape)).eval()


def transformers_model(shape: LlamaShape) -> Any:
    """transformers' Llama with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=shape.vocab_size,
        hidden_size=shape.d_model,
        intermediate_size=shape.d_ff,
        num_hidden_layers=shape.n_layers,
        num_attention_heads=shape.n_heads,
        num_key_value_heads=shape.n_kv_heads,
        max_position_embeddings=MAX_LEN,
        tie_word_embeddings=True,
        rms_norm_eps=NORM_EPS,
        initializer_range=2 * shape.d_model**-0.5,  # wide: the text does not repeat one token,
        bos_token_id=None,
        eos_token_id=None,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config).eval()


@torch.no_grad()
def copy_weights(theirs: Any, ours: nn.Module) -> int:
    """Give minitf's model the weights of transformers' Llama.

    Returns:
        The number of parameters, which is the same in both.

    Raises:
        ConfigError: a parameter of either has no counterpart.
    """
    named = {"embedding.weight": theirs.model.embed_tokens.weight, "final_norm.weight": theirs.model.norm.weight}
    for i, block in enumerate(theirs.model.layers):
        layer = {f"attention.projection.w_{n}": getattr(block.self_attn, f"{n}_proj") for n in "qkvo"}
        layer |= {"ffn.w_gate": block.mlp.gate_proj, "ffn.w_in": block.mlp.up_proj, "ffn.w_out": block.mlp.down_proj}
        layer |= {"attention_norm": block.input_layernorm, "ffn_norm": block.post_attention_layernorm}
        named |= {f"layers.{i}.{name}.weight": part.weight for name, part in layer.items()}
    own = dict(ours.named_parameters())
    sizes = [sum(p.numel() for p in params) for params in (own.values(), theirs.parameters())]
    if set(own) != set(named) or sizes[0] != sizes[1]:
        raise ConfigError(f"the models differ: {sizes[0]:,} parameters against {sizes[1]:,} of transformers'")
    for name, value in named.items():
        own[name].copy_(value)
    return sizes[0]


def cache_config(option: str) -> DictConfig:
    """A cache kind; one that reads less than the model was trained to is let."""
    node = compose("generate", [f"cache={option}"]).cache
    if "exact" in node:
        node.exact = False
    return node


def minitf_writer(model: nn.Module, clock: Clock, cache: str | None) -> Writer:
    """minitf's generation loop, greedy, with a cache kind or without any."""
    make = None if cache is None else build(cache_config(cache))

    def write(prompt: Tensor, n: int) -> Written:
        caches = None if make is None else model.new_caches(make)
        ids, times = [], []
        for step in generate(model, prompt, caches=caches, sampler=Greedy(), max_new_tokens=n):
            ids.append(step.ids)
            times.append(clock())
        return Written(torch.stack(ids, 1), times)

    return write


def transformers_writer(model: Any, clock: Clock, cache: str, compiled: bool = False) -> Writer:
    """transformers' own generate(), greedy; compiled: in the way that it compiles by itself on a GPU."""
    from transformers import CompileConfig, GenerationConfig
    from transformers.generation.streamers import BaseStreamer

    class StopWatch(BaseStreamer):
        """Notes the time of every token; the prompt comes first."""

        def __init__(self) -> None:
            self.times: list[float] = []

        def put(self, value: Tensor) -> None:
            self.times.append(clock())

        def end(self) -> None:
            pass

    settings = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0, "cache_implementation": cache}
    if compiled:
        settings["compile_config"] = CompileConfig()
        settings["compile_config"]._compile_all_devices = True

    def write(prompt: Tensor, n: int) -> Written:
        watch = StopWatch()
        config = GenerationConfig(max_new_tokens=n, **settings)
        real = torch.ones_like(prompt)
        with torch.no_grad():
            ids = model.generate(prompt, attention_mask=real, generation_config=config, streamer=watch)
        return Written(ids[:, prompt.size(1) :], watch.times[1:])

    return write
