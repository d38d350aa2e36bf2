"""From YAML files and overrides to checked values and built objects.

Nothing here imports torch at module level: checks and composing must answer at once.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import InstantiationException
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict

from minitf.errors import ConfigError, DataError
from minitf.kinds import DATA_FACTS, is_open, problems
from minitf.memory import ran_out

MAX_SEED = 2**32 - 1  # numpy takes no larger one
Known = dict[tuple[str, ...], tuple[DictConfig, Mapping[str, str | None]]]  # name and options -> config, its choices

OmegaConf.register_new_resolver("run_id", lambda: os.urandom(2).hex(), use_cache=True, replace=True)


def config_dir() -> Path:
    """The folder of YAML files: inside an installed package, or beside it in a checkout."""
    here = Path(__file__).resolve().parent
    for place in (here / "configs", here.parent / "configs"):
        if (place / "train.yaml").is_file():
            return place
    raise ConfigError(f"minitf's configs are missing beside {here}: install minitf again")


def compose(name: str, overrides: Sequence[str] = (), return_hydra_config: bool = False) -> DictConfig:
    """The config `name` with overrides, outside or inside of a command; if asked for, with Hydra's own settings."""
    wanted = {"overrides": list(overrides), "return_hydra_config": return_hydra_config}
    if GlobalHydra.instance().is_initialized():
        return hydra.compose(name, **wanted)
    with hydra.initialize_config_dir(str(config_dir()), version_base="1.3"):
        return hydra.compose(name, **wanted)


def compose_with_choices(name: str, overrides: Sequence[str] = ()) -> tuple[DictConfig, dict[str, str | None]]:
    """The config `name` with overrides, and its `choices`, at the price of one."""
    cfg = compose(name, overrides, return_hydra_config=True)
    chosen = _choices(cfg.hydra)
    with open_dict(cfg):
        del cfg["hydra"]
    return cfg, chosen


def check(
    cfg: DictConfig,
    name: str,
    overrides: Sequence[str],
    wanted: Mapping[str, str | None] | None = None,
    known: Known | None = None,
) -> None:
    """Refuse, before anything heavy is imported, unknown keys and values of the wrong kind, wherever they come from.

    Args:
        cfg: the composed config.
        name: the config it was composed from.
        overrides: what was typed.
        wanted: its `choices`, where they are known already.
        known: configs of options only, which many cells of a study share: filled here, for the next call.

    Raises:
        ConfigError: names the key, the value and what is expected.
    """
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    groups = config_groups()
    base, chosen = _base(name, overrides, wanted, {} if known is None else known)
    for override in parsed:
        # a part can hold another of its own group, which has a place of its own, such as model/init@model.init.base
        place = override.package
        if place is not None and f"{override.key_or_group}@{place}" not in chosen and not is_open(place):
            typed, group = override.input_line, override.key_or_group
            raise ConfigError(
                f"{typed} puts an option where nothing reads it: {group}=... chooses one in its own place"
            )
    typed = {override.key_or_group for override in parsed}
    added = [o.input_line for o in parsed if o.is_add() and o.key_or_group in groups]
    for key, message in problems(base, cfg, name, groups):
        own = any(key == t or key.startswith(f"{t}.") or t.startswith(f"{key}.") for t in typed)
        raise ConfigError(message if own or not added else f"{message}; it comes with {', '.join(added)}")
    if missing := sorted(OmegaConf.missing_keys(cfg)):
        raise ConfigError(f"{missing[0]} has no value: give {missing[0]}=...")
    _check_values(cfg, typed)


def _check_values(cfg: DictConfig, typed: Collection[str]) -> None:
    """What no part can see alone."""
    if not 0 <= cfg.get("seed", 0) <= MAX_SEED:
        raise ConfigError(f"seed ({cfg.seed}) must be a whole number from 0 to {MAX_SEED}")
    # the usual warm-up may be longer than a short trial; one that was asked for must fit
    if "schedule.warmup_steps" in typed and 0 < cfg.trainer.max_steps < cfg.schedule.warmup_steps:
        raise ConfigError(
            f"schedule.warmup_steps ({cfg.schedule.warmup_steps}) is longer than the run, trainer.max_steps "
            f"({cfg.trainer.max_steps}): the rate would never reach its peak. Shorten the warm-up or lengthen the run"
        )


def typed_values(overrides: Sequence[str]) -> list[tuple[str, Any]]:
    """Key and value of each `key=value` as Hydra reads it.

    Args:
        overrides: as typed.

    Raises:
        HydraException: no override.
    """
    return [(o.key_or_group, o.value()) for o in OverridesParser.create().parse_overrides(list(overrides))]


def choices(name: str, overrides: Sequence[str] = ()) -> dict[str, str | None]:
    """The option in each group or group@package, such as {"model": "gpt_tiny"}; None where it is not a single one."""
    return compose_with_choices(name, overrides)[1]


def _choices(own: DictConfig) -> dict[str, str | None]:
    return {group: option for group, option in own.runtime.choices.items() if not group.startswith("hydra/")}


def _raw(typed: ListConfig) -> list[str]:
    return OmegaConf.to_container(typed, resolve=False)


def _base(
    name: str, overrides: Sequence[str], wanted: Mapping[str, str | None] | None, known: Known
) -> tuple[DictConfig, Mapping[str, str | None]]:
    """The config with the chosen options only, and these: what an experiment or `+` added is not among them.

    What was typed mostly says it all. Where it does not, the choices are found level by level, because an option can
    bring groups of its own.
    """
    # inside of a command Hydra has composed them already
    now = HydraConfig.get() if HydraConfig.initialized() else None
    same = now is not None and now.job.config_name == name and _raw(now.overrides.task) == list(overrides)
    if wanted is None:
        wanted = _choices(now) if same else choices(name, overrides)
    typed = dict(override.split("=", 1) for override in overrides if "=" in override)
    chosen = {group: option for group, option in wanted.items() if group in typed and typed[group] == option}
    while True:
        key = name, *(f"{group}={option}" for group, option in chosen.items())
        if key not in known:
            known[key] = compose_with_choices(name, key[1:])
        base, own = known[key]
        new = {group: wanted[group] for group, option in own.items() if wanted.get(group) not in (None, option)}
        # another option of an outer group may not bring an inner one
        stays = [group for group in own if not any(_lies_in(group, outer) for outer in new)]
        # a group may be empty as it is, as data in a demo
        if odd := [group for group in stays if not isinstance(wanted.get(group), str) and own[group] is not None]:
            raise ConfigError(one_option(odd[0]))
        if not new:
            return base, own
        chosen |= new


def _lies_in(group: str, outer: str) -> bool:
    """Whether an option of `outer` brings `group`, at a place of its own (group@package) or by its name."""
    name, _, package = group.partition("@")
    return name.startswith(f"{outer}/") or f"{package}.".startswith(f"{outer.replace('/', '.')}.")


def one_option(group: str) -> str:
    """The message for a group, or a group@package, without exactly one option."""
    options = group_options(group.partition("@")[0])
    return f"{group} needs one option: {', '.join(f'{group}={option}' for option in options)}"


def group_options(group: str) -> list[str]:
    """The options of a config group that minitf brings."""
    return sorted(path.stem for path in (config_dir() / group).glob("*.yaml"))


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
        ConfigError: from a constructor, without Hydra's wrapping; unknown or missing arguments; no such target; sizes
            beyond the memory.
    """
    try:
        made = hydra.utils.instantiate(node, **extra, _convert_="all")
        if isinstance(made, functools.partial):
            # an unknown argument would be found at the call only, maybe after long work
            inspect.signature(made.func).bind_partial(*made.args, **made.keywords)
    except TypeError as error:
        raise ConfigError(f"{node.get('_target_')}: {error}") from error
    except InstantiationException as error:
        raise _reason(node, error) from None
    return made


def _reason(node: DictConfig | dict, error: InstantiationException) -> Exception:
    """What the user can do something about, behind Hydra's wrapping; the error itself where there is nothing."""
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    if own := [cause for cause in chain if isinstance(cause, ConfigError | DataError)]:
        return own[0]
    if isinstance(error.__cause__, TypeError) and "argument" in str(error.__cause__):
        return ConfigError(f"{node.get('_target_')}: {error.__cause__}")
    if located := re.match(r"Error locating target '([^']*)'", str(error)):
        key = re.search(r"full_key: (\S+)", str(error))
        return ConfigError(
            f"{key[1] + '.' if key else ''}_target_={located[1]} names nothing that can be imported ({chain[-1]}): "
            "check its spelling, or leave it out"
        )
    if any(ran_out(cause) for cause in chain):
        return ConfigError(f"{node.get('_target_')} does not fit into memory: choose smaller sizes")
    return error


def build_data(cfg: DictConfig) -> Any:
    """The data module of a config, not yet prepared."""
    node = {k: v for k, v in OmegaConf.to_container(cfg.data, resolve=True).items() if k not in DATA_FACTS}
    return build(node)


def set_data_facts(cfg: DictConfig, **facts: int) -> None:
    """Write what the data turned out to be into the config, where models read it."""
    for key, value in facts.items():
        OmegaConf.update(cfg, f"data.{key}", value)
