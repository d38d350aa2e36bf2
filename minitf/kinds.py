"""What may stand at a key of a config: known keys only, and values of the kind of their default."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

# what the command learns from the data and writes into the config before the model is built
DATA_FACTS = ("vocab_size", "src_vocab_size", "n_classes")
# keys for which null means something although their default is a value
NULLABLE = ("clip_norm", "chunk_rows", "chunk", "n_kv_heads", "d_head", "d_ff", "embedding_norm", "fast", "top_k")
NULLABLE += ("top_p",)

# mappings whose names are the user's own
OPEN = ("recipes", "encoder_recipes", "decoder_recipes")


def known_keys(cfg: DictConfig) -> list[str]:
    """Every dotted key of a config."""

    def walk(node: DictConfig, prefix: str) -> Iterator[str]:
        for key in node:
            yield f"{prefix}{key}"
            if not OmegaConf.is_missing(node, key) and not OmegaConf.is_interpolation(node, key):
                child = node[key]
                if isinstance(child, DictConfig):
                    yield from walk(child, f"{prefix}{key}.")

    return list(walk(cfg, ""))


def nearest(key: str, known: Collection[str]) -> str:
    """ "; nearest: a, b, c", or nothing where no known key is like `key`."""
    near = difflib.get_close_matches(key, sorted(known), n=3, cutoff=0.5)
    return f"; nearest: {', '.join(near)}" if near else ""


def problems(base: DictConfig, cfg: DictConfig, name: str, groups: Collection[str]) -> Iterator[tuple[str, str]]:
    """What is wrong in `cfg`: pairs of a key and a message, first the values, then the unknown keys.

    Args:
        base: the config as minitf has it: the options that were chosen, no typed value, no experiment.
        cfg: the same with everything.
        name: the config's name, for messages.
        groups: the config groups, for ways out.
    """
    known = known_keys(base)
    values, typed = (OmegaConf.to_container(c, resolve=False) for c in (base, cfg))
    for key in known:
        place, _, last = key.rpartition(".")
        holder = OmegaConf.select(cfg, place) if place else cfg
        if not isinstance(holder, DictConfig):
            continue  # the part above was reported, or may be null
        # `in` would say no to ???, too; a name of the user's own in a study may be no text, such as 1
        if last not in map(str, holder):
            instead = f", or give {key}=null" if last in NULLABLE else ""
            yield key, f"~{key} takes out what is needed: leave it away{instead}"
            continue
        raw = _at(values, key)
        # 1 == True == 1.0, but they are not the same to type
        if repr(raw) != repr(_at(typed, key)) and (message := _wrong(key, base, cfg, raw, groups)):
            yield key, message
    there = set(known)
    for key in known_keys(cfg):
        if key not in there and not is_open(key) and (key.rpartition(".")[0] in there or "." not in key):
            yield key, f"'{key}' is no key of '{name}'{nearest(key, known)}"


def is_open(key: str) -> bool:
    """Whether a key lies in a mapping whose names are the user's own, such as model.recipes."""
    return any(part in OPEN for part in key.split(".")[:-1])


def _at(tree: Any, key: str) -> Any:
    for part in key.split("."):
        tree = tree[part] if isinstance(tree, dict) and part in tree else None
    return tree


def _wrong(key: str, base: DictConfig, cfg: DictConfig, raw: Any, groups: Collection[str]) -> str | None:
    """Why the value of `cfg` at `key`, which differs from that of `base`, cannot stand there."""
    facts = [f"data.{fact}" for fact in DATA_FACTS]
    counted = key in facts or raw in [f"${{{fact}}}" for fact in facts]
    if counted and OmegaConf.select(base, key) is None:  # a demo has no data, and says these numbers itself
        return f"{key} cannot be set, it is counted in the data: data.tokenizer.vocab_size chooses that of bpe"
    if OmegaConf.is_missing(base, key):
        return None
    return _wrong_kind(key, OmegaConf.select(base, key), OmegaConf.select(cfg, key), groups)


def _wrong_kind(key: str, default: Any, value: Any, groups: Collection[str]) -> str | None:
    """A value keeps the kind of its default: a number stays a number. A default of null takes any single value."""
    if value is None:
        if default is None or key.rsplit(".", 1)[-1] in NULLABLE:
            return None
        return f"{key} cannot be null" + ("" if isinstance(default, DictConfig) else f"; the default is {default}")
    if isinstance(default, DictConfig):
        if isinstance(value, DictConfig):
            return None
        group = key.replace(".", "/")
        way = (
            f"{group}={value} chooses an option" if group in groups else f"change its keys: {', '.join(_own(default))}"
        )
        return f"{key} is a part with keys of its own, not a value such as {value!r}: {way}"
    if isinstance(value, DictConfig):
        return f"{key} is one value, not a part with keys such as {', '.join(_own(value))}"
    kind = _expected(default, value)
    if kind is None:
        return None
    example = "" if default is None or isinstance(default, bool) else f" such as {_shown(default)}"
    return f"{key} must be {kind}{example}, got {_shown(value)}"


def _expected(default: Any, value: Any) -> str | None:
    """The kind that is asked for, or None where `value` fits."""
    if isinstance(default, ListConfig):
        if not isinstance(value, ListConfig):
            return "a list"
        of_numbers = len(default) > 0 and all(_is_number(item) for item in default)
        return "a list of numbers" if of_numbers and not all(_is_number(item) for item in value) else None
    if isinstance(default, bool):
        return None if isinstance(value, bool) else "true or false"
    if isinstance(default, int):
        return None if isinstance(value, int) and not isinstance(value, bool) else "a whole number"
    if isinstance(default, float):
        return None if _is_number(value) else "a number"
    if isinstance(default, str) and isinstance(value, bool):
        return "a text"
    return "a single value" if isinstance(value, ListConfig) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _own(node: DictConfig) -> list[str]:
    return [str(key) for key in node if not str(key).startswith("_")] or [str(key) for key in node]


def _shown(value: Any) -> str:
    """A value as one types it."""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, str) else str(value)
