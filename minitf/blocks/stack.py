"""A stack: layers one after another, with the position scheme that they share. Layers may differ."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from minitf.blocks.checks import check_positive, check_probability
from minitf.blocks.fit import check_cache
from minitf.blocks.layer import is_there
from minitf.blocks.mask import Mask
from minitf.blocks.position import Position
from minitf.blocks.position.once import OncePerPass
from minitf.cache import KVCache, check_maker
from minitf.errors import ConfigError
from minitf.positions import offset

PARTS = ("attention", "position", "mask", "ffn", "norm", "layer", "cross_attention")
# where minitf's own parts of a kind are defined
GROUPS = dict.fromkeys(("attention", "cross_attention"), ("minitf.blocks.attention", "minitf.blocks.latent"))
GROUPS |= {kind: (f"minitf.blocks.{kind}.",) for kind in ("position", "ffn", "norm", "layer")}


class Stack(nn.Module):
    """Layers between an embedding and a head: (B,T,D) -> (B,T,D).

    Args:
        max_len: longest row of the data; the end of learned position tables, no limit otherwise.
        d_model: width D of the residual stream.
        n_layers: number of layers L.
        dropout: probability of dropping an element of the embedding and of each sublayer's output.
        attention, ffn, norm, layer: factories of the parts, called once per layer.
        position: factory of the position scheme, called once.
        mask: which token reads which.
        recipes: name -> parts that differ from those above, any of attention, position, mask, ffn, norm, layer and
            cross_attention. A position scheme of a recipe belongs to each of its layers alone, and adds nothing to
            the embedding.
        pattern: a name for each layer, repeated until there are n_layers; null or an unlisted name: no difference.
        cross_attention: factory of the attention to another sequence; None: there is none.
        embedding_norm: factory of a norm on the embedding, after positions are added; None: there is none.

    Attributes:
        sees_future: whether a mask lets a token read later ones.
        position_limit: number of places that the position scheme can tell apart, or None if there is no end.

    Raises:
        ConfigError: parts that do not fit together.
    """

    def __init__(
        self,
        *,
        max_len: int,
        d_model: int,
        n_layers: int,
        dropout: float,
        attention: Callable[..., nn.Module],
        position: Callable[..., Position],
        mask: Mask,
        ffn: Callable[..., nn.Module],
        norm: Callable[[int], nn.Module],
        layer: Callable[..., nn.Module],
        recipes: Mapping[str, Mapping[str, Any]] | None = None,
        pattern: Sequence[str] | None = None,
        cross_attention: Callable[..., nn.Module] | None = None,
        embedding_norm: Callable[[int], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        check_positive(d_model=d_model, n_layers=n_layers)
        check_positive(**{"max_len (data.seq_len)": max_len})
        check_probability("dropout", dropout)
        self.n_layers = n_layers
        self.dropout = nn.Dropout(dropout)
        common = {"attention": attention, "mask": mask, "ffn": ffn, "norm": norm, "layer": layer}
        common["cross_attention"] = cross_attention
        may_differ = PARTS if cross_attention is not None else PARTS[:-1]
        chosen = [{**common, **own} for own in _own_parts(recipes or {}, pattern or [], n_layers, may_differ)]
        self.sees_future = any(parts["mask"].sees_future for parts in chosen)
        sizes = {"d_model": d_model, "dropout": dropout, "max_len": max_len}
        self.layers = nn.ModuleList(_layer(parts, **sizes) for parts in chosen)
        # layers without attention need no position; where no layer has any, the first one says what it can take
        reading = [one for one in self.layers if is_there(one.attention)] or [self.layers[0]]
        shared = [one for one in reading if one.position is None] or reading
        self.position = _position(position, shared[0].attention, d_model, max_len, causal=not self.sees_future)
        for one in reading:
            _check_position(one.position or self.position, one.attention)
            if one.position is None:
                _check_width(self.position, one.attention.d_rotary, shared[0].attention.d_rotary)
        self.embedding_norm = nn.Identity() if embedding_norm is None else embedding_norm(d_model)
        self.final_norm = norm(d_model) if self.layers[-1].needs_final_norm else nn.Identity()

    @property
    def position_limit(self) -> int | None:
        return self.position.limit

    @property
    def n_writes(self) -> int:
        """How many sublayers write into the residual stream, for the initialisation."""
        return sum(layer.n_writes for layer in self.layers)

    def run(
        self,
        x: Tensor,
        pos: Tensor | None,
        caches: Sequence[KVCache] | None = None,
        memory: Tensor | None = None,
        memory_pos: Tensor | None = None,
        cross_caches: Sequence[KVCache] | None = None,
    ) -> Tensor:
        """Embedded tokens -> last hidden states.

        Args:
            x: (B,T,D).
            pos: (B or 1, T) positions; None means that the row simply goes on, without padding.
            caches: one per layer.
            memory, memory_pos: another sequence (B,S,D) to read, and its positions.
            cross_caches: one per layer, for what is made of it.

        Returns:
            (B,T,D).

        Raises:
            ConfigError: more places than a learned table has, positions or caches that do not fit.
        """
        if caches is not None:
            self._check_caches(caches)
        plain = pos is None
        if plain:
            pos = self._next_positions(x, caches)
        else:
            self._check_positions(x, pos)
        position = OncePerPass(self.position)
        x = self.dropout(self.embedding_norm(self.position.embed(x, pos)))
        for i, layer in enumerate(self.layers):
            x = layer(
                x,
                pos=pos,
                plain=plain,
                position=position,
                memory=memory,
                memory_pos=memory_pos,
                cache=None if caches is None else caches[i],
                cross_cache=None if cross_caches is None else cross_caches[i],
            )
        return self.final_norm(x)

    def new_caches(self, make: Callable[[], KVCache]) -> list[KVCache]:
        """One fresh cache per layer.

        Args:
            make: gives a new cache at each call: a class such as `Dynamic`, `lambda: Window(256)`, or what a line of
                configs/cache builds.

        Raises:
            ConfigError: `make` is something else, or caches of this kind would change what the model computes.
        """
        check_maker(make)
        caches = [make() for _ in self.layers]
        self._check_fit(caches)
        return caches

    def _check_fit(self, caches: Sequence[KVCache]) -> None:
        for i, (layer, cache) in enumerate(zip(self.layers, caches, strict=True)):
            if is_there(layer.attention):
                check_cache(cache, layer.attention, layer.position or self.position, i)

    def _next_positions(self, x: Tensor, caches: Sequence[KVCache] | None) -> Tensor:
        start = 0
        if caches is not None:
            if not caches[0].plain:
                raise ConfigError("these caches hold padded or packed rows: give the positions of the new tokens")
            start = caches[0].n_seen
        end = start + x.size(1)
        self._check_places(end)
        return torch.arange(start, end, device=x.device)[None]

    def _check_caches(self, caches: Sequence[KVCache]) -> None:
        if self.sees_future:
            raise ConfigError(
                "this mask lets a token read later ones, which a cache cannot hold yet: run the model without caches"
            )
        # a graph that knew the caches would be good for these alone
        n_different = len(caches) if torch.compiler.is_compiling() else len({id(cache) for cache in caches})
        if len(caches) != self.n_layers or n_different != self.n_layers:
            raise ConfigError(
                f"this model has {self.n_layers} layers and needs a cache for each, got {len(caches)}, "
                f"{n_different} of them different: use new_caches"
            )
        if caches[0].n_seen == 0:
            self._check_fit(caches)

    def _check_positions(self, x: Tensor, pos: Tensor) -> None:
        rows, length = x.shape[:2]
        if pos.dtype != torch.int64 or pos.shape not in ((rows, length), (1, length)):
            raise ConfigError(
                f"positions of ids {(rows, length)} must be int64 of that shape or (1, {length}), "
                f"got {pos.dtype} {tuple(pos.shape)}: see minitf.positions.from_real"
            )
        # asking a tensor would cut a compiled graph in two
        if self.position_limit is not None and not torch.compiler.is_compiling():
            self._check_places(int(offset(pos).max()) + 1)

    def _check_places(self, n: int) -> None:
        if self.position_limit is not None and n > self.position_limit:
            raise ConfigError(
                f"{n} tokens do not fit the learned position table of {self.position_limit} places: "
                "shorten the text, or train with model/position=rope, sinusoidal or none"
            )


def _own_parts(
    recipes: Mapping[str, Mapping[str, Any]], pattern: Sequence[str], n_layers: int, may_differ: Sequence[str]
) -> list[Mapping[str, Any]]:
    """What is special about each layer."""
    for name, recipe in recipes.items():
        _check_recipe(name, recipe, may_differ)
    if odd := [name for name in pattern if not (name is None or isinstance(name, str))]:
        raise ConfigError(f"a pattern is a list of names of recipes, got {odd[0]!r} in it")
    if unused := set(recipes) - set(pattern):
        raise ConfigError(f"no layer uses the recipe {sorted(unused)}: name it in the pattern beside the recipes")
    if not pattern:
        return [{}] * n_layers
    if n_layers % len(pattern):
        raise ConfigError(
            f"a pattern of {len(pattern)} layers does not fill n_layers ({n_layers}): make it a multiple of that"
        )
    return [recipes.get(name, {}) for name in pattern] * (n_layers // len(pattern))


def _check_recipe(name: str, recipe: Any, may_differ: Sequence[str]) -> None:
    """Raise ConfigError unless a recipe maps names of parts to parts of their kind."""
    if not isinstance(recipe, Mapping):
        raise ConfigError(f"recipe '{name}' is a {type(recipe).__name__}, not parts by name: {', '.join(may_differ)}")
    if odd := set(recipe) - set(may_differ):
        raise ConfigError(f"recipe '{name}' has {sorted(odd)}; here a recipe can hold {', '.join(may_differ)}")
    for key, part in recipe.items():
        made = part.func if isinstance(part, functools.partial) else part
        home = getattr(made if key != "mask" else type(made), "__module__", "")
        fits = isinstance(part, Mask) if key == "mask" else callable(part) and not isinstance(part, Mask)
        own = home.startswith("minitf.blocks.")
        if fits and own and key in GROUPS and not home.startswith(GROUPS[key]):
            fits = False
        if not fits:
            what = getattr(made, "__name__", None) or (repr(part) if part is None else type(made).__name__)
            raise ConfigError(f"recipe '{name}' names {what} as its {key}: choose an option of model/{key}")


def _layer(parts: Mapping[str, Any], *, d_model: int, dropout: float, max_len: int) -> nn.Module:
    attention = parts["attention"](d_model=d_model, mask=parts["mask"])
    cross = parts["cross_attention"]
    own = parts.get("position")
    if own is not None:
        own = _position(own, attention, d_model, max_len, causal=not parts["mask"].sees_future)
        if "embed" in own.uses:
            raise ConfigError(
                f"position={type(own).__name__} is added to the embedding, before the first layer: a recipe can only "
                "choose one that rotates or biases, for example rope or alibi"
            )
    return parts["layer"](
        d_model=d_model,
        attention=attention,
        ffn=parts["ffn"](d_model=d_model),
        norm=parts["norm"],
        dropout=dropout,
        cross_attention=None if cross is None else cross(d_model=d_model, mask=parts["mask"]),
        position=own,
    )


def _position(
    make: Callable[..., Position], attention: nn.Module, d_model: int, max_len: int, causal: bool
) -> Position:
    heads = {"d_head": attention.d_rotary, "n_heads": attention.n_heads}
    return make(d_model=d_model, **heads, max_len=max_len, causal=causal)


def _check_width(position: Position, width: int, shared: int) -> None:
    """Raise ConfigError unless what a layer rotates is as wide as the scheme that the stack shares is made for."""
    if "rotate" in position.uses and width != shared:
        raise ConfigError(
            f"one position scheme serves layers whose heads have {shared} and {width} features to rotate: make d_head "
            "(d_rotary of attention=mla) the same, or give the recipe a position of its own"
        )


def _check_position(position: Position, attention: nn.Module) -> None:
    if missing := position.uses - attention.accepts:
        own, other = type(position).__module__.rpartition(".")[2], getattr(attention, "option", None)
        raise ConfigError(
            f"model/position={own} works by {sorted(missing)}, but model/attention={other or type(attention).__name__} "
            f"takes only {sorted(attention.accepts)}: choose another of the two"
        )
