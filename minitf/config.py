"""From YAML files and overrides to checked values and built objects.

Nothing here imports torch at module level: checks and composing must answer at once.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import InstantiationException
from omegaconf import DictConfig, ListConfig, OmegaConf

from minitf.errors import ConfigError, DataError

# what the command learns from the data and writes into the config before the model is built
DATA_FACTS = ("vocab_size",)
# keys for which null means something although their default is a value
NULLABLE = ("clip_norm", "chunk_rows", "n_kv_heads", "d_head", "d_ff", "fast", "top_k", "top_p")

OmegaConf.register_new_resolver("run_id", lambda: os.urandom(2).hex(), use_cache=True, replace=True)


def config_dir() -> Path:
    """The folder of YAML files: inside an installed package, or beside it in a checkout."""
    here = Path(__file__).resolve().parent
    for place in (here / "configs", here.parent / "configs"):
        if (place / "train.yaml").is_file():
            return place
    raise ConfigError(f"minitf's configs are missing beside {here}: install minitf again")


def compose(name: str, overrides: Sequence[str] = ()) -> DictConfig:
    """The config `name` with overrides, outside or inside of a command."""
    if GlobalHydra.instance().is_initialized():
        return hydra.compose(name, overrides=list(overrides))
    with hydra.initialize_config_dir(str(config_dir()), version_base="1.3"):
        return hydra.compose(name, overrides=list(overrides))


def check(cfg: DictConfig, name: str, overrides: Sequence[str]) -> None:
    """Refuse, before anything heavy is imported, unknown keys that came in by `+` and values of the wrong kind.

    Args:
        cfg: the composed config.
        name: the config it was composed from.
        overrides: what was typed.

    Raises:
        ConfigError: names the key, the value and what is expected.
    """
    groups = config_groups()
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    choices = [o.input_line for o in parsed if o.key_or_group in groups]
    base = compose(name, choices)
    known = known_keys(base)
    for override in parsed:
        key = override.key_or_group
        if (override.is_add() or override.is_force_add()) and key not in groups and key not in known:
            near = difflib.get_close_matches(key, known, n=3, cutoff=0.5)
            raise ConfigError(f"'{key}' is no key of '{name}'; nearest: {', '.join(near) or 'none'}")
    for key in known:
        if not OmegaConf.is_missing(base, key):
            _check_kind(key, OmegaConf.select(base, key), OmegaConf.select(cfg, key))
    if missing := sorted(OmegaConf.missing_keys(cfg)):
        raise ConfigError(f"{missing[0]} has no value: give {missing[0]}=...")


def _check_kind(key: str, default: Any, value: Any) -> None:
    """A value keeps the kind of its default: a number stays a number. A default of null takes anything."""
    if value is None and default is not None and key.rsplit(".", 1)[-1] not in NULLABLE:
        raise ConfigError(f"{key} cannot be null; the default is {str(default).splitlines()[0]:.60}")
    if isinstance(default, DictConfig) and value is not None and not isinstance(value, DictConfig):
        group = key.replace(".", "/")
        way = f"{group}={value} chooses an option" if group in config_groups() else "change the keys inside it"
        raise ConfigError(f"{key} is a part with keys of its own, not a value such as {value!r}: {way}")
    if default is None or value is None or isinstance(default, DictConfig) or isinstance(value, DictConfig):
        return
    if isinstance(default, bool):
        fits, kind = isinstance(value, bool), "true or false"
    elif isinstance(default, int):
        fits, kind = isinstance(value, int) and not isinstance(value, bool), "a whole number"
    elif isinstance(default, float):
        fits, kind = isinstance(value, int | float) and not isinstance(value, bool), "a number"
    elif isinstance(default, ListConfig):
        fits, kind = isinstance(value, ListConfig), "a list like [a,b]"
    else:
        return
    if not fits:
        raise ConfigError(f"{key} must be {kind} such as {str(default).lower()}, got {value!r}")


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


def config_groups() -> list[str]:
    """Every config group, for example "model/attention"."""
    root = config_dir()
    return sorted(str(p.relative_to(root).as_posix()) for p in root.rglob("*") if p.is_dir())


def build(node: DictConfig | dict, **extra: Any) -> Any:
    """Make the object that a config node describes.

    Args:
        node: a mapping with `_target_`.
        extra: arguments added to those of the node.

    Raises:
        ConfigError: from a constructor, without Hydra's wrapping; unknown or missing arguments.
    """
    try:
        return hydra.utils.instantiate(node, **extra, _convert_="all")
    except InstantiationException as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ConfigError | DataError):
            cause = cause.__cause__
        if cause is not None:
            raise cause from None
        if isinstance(error.__cause__, TypeError) and "argument" in str(error.__cause__):
            raise ConfigError(f"{node.get('_target_')}: {error.__cause__}") from error
        raise


def build_data(cfg: DictConfig) -> Any:
    """The data module of a config, not yet prepared."""
    node = {k: v for k, v in OmegaConf.to_container(cfg.data, resolve=True).items() if k not in DATA_FACTS}
    return build(node)


def set_data_facts(cfg: DictConfig, **facts: int) -> None:
    """Write what the data turned out to be into the config, where models read it."""
    for key, value in facts.items():
        OmegaConf.update(cfg, f"data.{key}", value)
