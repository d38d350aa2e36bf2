"""The parts that the config groups offer, small enough for property tests: a new yaml joins by itself."""

import itertools
import random
from collections.abc import Callable
from functools import cache

import torch
from omegaconf import DictConfig, OmegaConf

from minitf.blocks.position.none import NoPosition
from minitf.cache import KVCache
from minitf.config import build, compose, config_dir
from minitf.positions import from_real

# what makes an option's defaults show their effect on rows of a dozen tokens
SMALL = {"model/mask=sliding_window": ["model.mask.window=3", "model.mask.n_sink=1"]}
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
    with torch.no_grad():
        for p in block.parameters():
            p.copy_(torch.randn_like(p) * scale / d_model)
    return block.eval()


def caches(name: str) -> Callable[[], KVCache]:
    """A maker of caches of one kind."""
    return build(compose(f"cache/{name}").cache)


def position(name: str = "none", d_head: int = 4, n_heads: int = 4, max_len: int = 32) -> torch.nn.Module:
    """One position scheme."""
    scheme = build(node("gpt_tiny", f"model/position={name}").position)
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


def pairs(**axes: list) -> list[dict]:
    """Few cells that hold every pair of choices of two axes at least once; always the same ones."""
    names = list(axes)
    cells = [dict(zip(names, values, strict=True)) for values in itertools.product(*axes.values())]
    random.Random(0).shuffle(cells)

    def pairs_of(cell: dict) -> set:
        return set(itertools.combinations(sorted(cell.items(), key=lambda item: names.index(item[0])), 2))

    missing, chosen = set().union(*map(pairs_of, cells)), []
    while missing:
        best = max(cells, key=lambda cell: len(missing & pairs_of(cell)))
        chosen.append(best)
        missing -= pairs_of(best)
    return chosen


def product(**axes: list) -> list[dict]:
    """Every cell."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def name(cell: dict) -> str:
    """A readable test id."""
    return "-".join(str(value).removeprefix("torch.") for value in cell.values())
