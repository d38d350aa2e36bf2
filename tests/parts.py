"""The parts that the config groups offer, small enough for property tests: a new yaml joins by itself."""

import itertools
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any

import pytest
import torch
from cover import cover
from omegaconf import DictConfig, OmegaConf
from refused import refused

from minitf.blocks.position.none import NoPosition
from minitf.cache import KVCache
from minitf.config import build, compose, config_dir
from minitf.positions import from_real

BIGBIRD = ["block=1", "n_window=1", "n_global=1", "n_random=1", "length=8"]
# what makes an option's defaults show their effect on rows of a few tokens
SMALL = {
    "model/mask=sliding_window": ["model.mask.window=3"],
    "model/mask=window_sinks": ["model.mask.window=2", "model.mask.n_sink=2"],
    "model/mask=block_local": ["model.mask.block=2"],
    "model/mask=causal_block_local": ["model.mask.masks.block_local.block=3"],
    "model/mask=strided": ["model.mask.stride=3"],
    "model/mask=prefix_lm": ["model.mask.n_prefix=3"],
    "model/mask=bigbird": [f"model.mask.{value}" for value in BIGBIRD],
    "model/mask=causal_bigbird": [f"model.mask.masks.bigbird.{value}" for value in BIGBIRD],
    "model/attention/score=additive": ["model.attention.score.chunk=4"],
    "model/attention/score=gatv2": ["model.attention.score.chunk=4"],
    "model/attention/score=log_length": ["model.attention.score.base=4"],
    "model/attention/score=soft_cap": ["model.attention.score.cap=2"],
    "model/position/scaling=llama3": ["model.position.scaling.trained_len=16"],
    "model/attention=mla": ["model.attention.d_latent=6", "model.attention.d_rotary=4"],
    "cache=static": ["cache.max_len=64"],
    "cache=window": ["cache.window=3", "cache.n_sink=2"],
    "cache=streaming": ["cache.window=3", "cache.n_sink=2"],
}
# values that make a variant of their own out of an option
VALUES = {
    "model/position": ["rope+rotated=0.5"],
    "cache": [
        "static+max_len=null",
        "window+window=4",
        "window+exact=false",
        "window+exact=false+n_sink=0+spare=3",
        "window+exact=false+n_sink=0+window=1",
        "streaming+n_sink=0",
        "int8+inner=static",
        "int8+inner=window+inner.exact=false",
        "int8+inner=streaming",
    ],
}
SIZES = ["model.vocab_size=65", "model.max_len=32", "model.d_model=16", "model.n_layers=2"]
SIZES += ["model.src_vocab_size=65", "model.n_encoder_layers=2", "model.n_decoder_layers=2", "model.n_classes=3"]
PADDINGS = ("none", "left", "right")


def options(group: str) -> list[str]:
    """Names of the options of a config group."""
    return sorted(p.stem for p in (config_dir() / group).glob("*.yaml"))


@cache
def presets(architecture: str = "Decoder") -> list[str]:
    """Names of the assembled models whose class is `architecture`."""
    return [name for name in options("model") if compose(f"model/{name}").model._target_.endswith(f".{architecture}")]


@cache
def sizes(preset: str) -> list[str]:
    """What makes a preset small: those of SIZES that it has."""
    known = compose(f"model/{preset}").model
    return [size for size in SIZES if size.split("=")[0].removeprefix("model.") in known]


def nested(group: str) -> list[str]:
    """Options of a group; those that choose from a group below once for each choice, as "rope+scaling=yarn"."""
    found = []
    for option in options(group):
        below = [
            g.name for g in sorted((config_dir() / group).iterdir()) if g.is_dir() and g.name in own(group, option)
        ]
        found += [f"{option}+{g}={o}" for g in below for o in options(f"{group}/{g}")] or [option]
    return found + [value for value in VALUES.get(group, []) if value.split("+")[0] in options(group)]


def own(group: str, choice: str) -> DictConfig:
    """The config of a choice of `nested`."""
    option, *below = choice.split("+")
    made = _option(f"{group}={option}").copy()
    for key, value in (b.split("=") for b in below):
        if key == "inner":  # another of the same kind inside
            chosen = own(group, value)
        else:
            chosen = _option(f"{group}/{key}={value}") if (config_dir() / group / key).is_dir() else yaml(value)
        OmegaConf.update(made, key, chosen, merge=False)
    return made


def yaml(value: str) -> Any:
    """What is meant by the right side of an override."""
    return OmegaConf.create(f"value: {value}").value


@cache
def _option(choice: str) -> DictConfig:
    """The config of one option such as "model/mask=causal", without the model around it: that would take 0.1 s."""
    group, option = choice.split("=")
    made = OmegaConf.load(config_dir() / group / f"{option}.yaml")
    if "defaults" in made:
        made = OmegaConf.select(compose(f"{group}/{option}"), group.replace("/", "."))
    for small in SMALL.get(choice, []):
        key, value = small.removeprefix(group.replace("/", ".") + ".").split("=", 1)
        OmegaConf.update(made, key, yaml(value))
    return made


@cache
def _composed(preset: str, *overrides: str) -> DictConfig:
    return compose(f"model/{preset}", [*sizes(preset), *overrides]).model


def node(preset: str = "gpt_tiny", *overrides: str) -> DictConfig:
    """The config of a small model: what `compose` gives, but each option is composed once, because that takes 0.1 s."""
    made = _composed(preset).copy()
    for override in sorted(overrides, key=lambda o: "/" not in o.split("=")[0]):  # options, then values, as Hydra does
        key, value = override.split("=", 1)
        if "/" in key:
            path = key.replace("/", ".").removeprefix("model.")
            option = OmegaConf.select(_composed(preset, override, *SMALL.get(override, [])), path)
            OmegaConf.update(made, path, option.copy(), merge=False)
        else:
            made.merge_with(OmegaConf.from_dotlist([f"{key.removeprefix('model.')}={value}"]))
    return made


def model(preset: str = "gpt_tiny", *overrides: str, scale: float = 1.0) -> torch.nn.Module:
    """A small model in evaluation mode; `scale` > 1 makes its matrices large, so that no part can hide in the noise."""
    torch.manual_seed(0)
    made = build(node(preset, *overrides)).eval()
    with torch.no_grad():
        for p in made.parameters():
            if p.dim() == 1:
                p.add_(0.3 * torch.randn_like(p))
            else:
                p.mul_(scale)
    return made


def attention(*overrides: str, d_model: int = 16, scale: float = 8.0) -> torch.nn.Module:
    """One attention block of a small model, with its mask."""
    torch.manual_seed(0)
    made = node("gpt_tiny", *overrides)
    block = build(made.attention)(d_model=d_model, mask=build(made.mask))
    randomise(block, scale / d_model)
    return block.eval()


@torch.no_grad()
def randomise(module: torch.nn.Module, std: float) -> None:
    """Random values for every parameter, so that none is 0 or 1 by initialisation: vectors (gains, biases,
    temperatures) of variance 1, matrices of `std`."""
    for p in module.parameters():
        p.copy_(torch.randn_like(p) * (std if p.dim() > 1 else 1.0))


@cache
def factory(group: str, choice: str) -> Any:
    """What builds a part, from its option alone: the quick way to many blocks."""
    return _unwrapped(build(own(group, choice)))


def _unwrapped(made: Any) -> Any:
    """Without Hydra's own checks at each call, which take as long as building the part."""
    if not isinstance(made, partial):
        return made
    return partial(made.func, *made.args, **{key: _unwrapped(value) for key, value in made.keywords.items()})


def attentions() -> list[str]:
    """Names of the options of model/attention that attend."""
    return [name for name in options("model/attention") if name != "none"]


def head_counts() -> list[str]:
    """Those that differ in the number of heads alone, so that any projection will do."""
    return [name for name in attentions() if "projection" in own("model/attention", name)]


def causal_masks() -> list[str]:
    """Names of the masks that show nothing later: those that a cache can serve."""
    return [name for name in options("model/mask") if not factory("model/mask", name).sees_future]


def cache_kinds() -> list[str]:
    """Choices of a cache: every option but none, every variant."""
    return [name for name in nested("cache") if name != "none"]


@cache
def caches(name: str) -> Callable[[], KVCache]:
    """A maker of caches of one kind."""
    return build(compose(f"cache/{name}", SMALL.get(f"cache={name}", [])).cache)


@cache
def fitting_caches(mask: str) -> list[str]:
    """Names of the cache kinds that keep all that a model with this mask reads, as and where it stood."""
    reads_within = factory("model/mask", mask).reads_within
    made = {name: caches(name)() for name in options("cache") if name != "none"}
    return [name for name, c in made.items() if c.keeps is None or (c.exact and reads_within(*c.keeps))]


def fits(cell: dict) -> bool:
    """Whether the cache of a cell, if it has one, is among those that fit its mask."""
    return not {"cache", "mask"} <= cell.keys() or cell["cache"] in fitting_caches(cell["mask"])


def position(name: str = "none", d_head: int = 4, n_heads: int = 4, max_len: int = 32) -> torch.nn.Module:
    """One position scheme."""
    scheme = factory("model/position", name)
    return scheme(d_model=16, d_head=d_head, n_heads=n_heads, max_len=max_len, causal=True)


def attend(block, x, pos=None, cache=None, scheme=None):
    """Self-attention of `block` over `x`; pos=None is plain."""
    plain = pos is None
    if plain:
        start = 0 if cache is None else cache.n_seen
        pos = torch.arange(start, start + x.size(1))[None]
    scheme = scheme or NoPosition(d_model=16, d_head=4, n_heads=4, max_len=32, causal=True)
    return block(x, pos=pos, plain=plain, position=scheme, cache=cache)


def padded(lengths: list[int], side: str) -> torch.Tensor | None:
    """Positions of rows of these lengths padded to the longest on one side; None for side "none"."""
    if side == "none":
        return None
    places, n = torch.arange(max(lengths)), torch.tensor(lengths)[:, None]
    return from_real(places < n if side == "right" else places >= max(lengths) - n)


def some_by_default(cases: Iterable, every: int) -> list:
    """Cases of a test of which the default suite takes the first of each `every`; the others are slow, and run in CI.

    Args:
        cases: what `pytest.mark.parametrize` takes: single values, tuples, or results of `pytest.param`.
        every: 2 takes every second one.
    """
    found = []
    for i, case in enumerate(cases):
        values = case.values if hasattr(case, "marks") else case if isinstance(case, tuple) else (case,)
        marks = () if i % every == 0 else pytest.mark.slow
        found.append(pytest.param(*values, marks=marks, id=getattr(case, "id", None)))
    return found


def pairs(**axes: list) -> list[dict]:
    """Few cells that hold every pair of choices of two axes that is not refused and fits; always the same ones."""
    return cover(axes, lambda a, b: refused(a, b) or not fits(dict([a, b])))


def product(**axes: list) -> list[dict]:
    """Every cell."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def name(cell: dict) -> str:
    """A readable test id."""
    return "-".join(str(value).removeprefix("torch.") for value in cell.values())
