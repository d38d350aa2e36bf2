"""Whether a cache can serve a layer."""

from __future__ import annotations

from torch import nn

from minitf.blocks.position import Position
from minitf.cache import KVCache
from minitf.errors import ConfigError


def check_cache(cache: KVCache, attention: nn.Module, position: Position, layer: int) -> None:
    """Raise ConfigError where cached decoding would not be what the model computes.

    Args:
        cache: of this layer.
        attention: of this layer; it has a mask and `reads_previous`.
        position: the scheme that this layer uses.
        layer: number of the layer, for the message.
    """
    kind = type(cache).__name__
    if cache.raw_keys and "embed" in position.uses:
        raise ConfigError(
            f"this {kind} cache renumbers positions and cannot serve position={_option(position)}, which is added to "
            f"the embedding once: choose {_option_key(cache)}=window or dynamic, or a model with another position, "
            "such as rope or alibi"
        )
    if cache.raw_keys and attention.reads_previous:
        raise ConfigError(
            f"this {kind} cache renumbers positions and cannot serve keys that read the token before them "
            f"(projection=smeared): choose {_option_key(cache)}=window or dynamic"
        )
    if cache.keeps is None:
        return
    window, n_sink = cache.keeps
    needed = "" if not attention.reads_previous else ", one of them for the key before (projection=smeared)"
    if window - attention.reads_previous < 1:
        raise ConfigError(f"a window of {window} tokens{needed} leaves nothing to read: make {cache.key}.window larger")
    if cache.exact and not attention.mask.reads_within(window - attention.reads_previous, n_sink):
        raise ConfigError(
            f"layer {layer} reads further (mask {type(attention.mask).__name__}) than this {kind} cache keeps: the "
            f"last {window} tokens{needed}, and the first {n_sink}. Take a larger {cache.key}.window, cache=dynamic, "
            f"or {cache.key}.exact=false to let the model read less than it was trained to"
        )


def _option_key(cache: KVCache) -> str:
    return "cache" if cache.key == "cache" else f"cache@{cache.key}"


def _option(position: Position) -> str:
    return type(position).__module__.rpartition(".")[2]
