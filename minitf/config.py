"""From YAML files and a command line to checked values and built objects. The only file that imports hydra.

Nothing here imports torch at module level: help, checks and composing must answer at once.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, InstantiationException
from hydra.types import RunMode
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from minitf.errors import ConfigError, DataError

# what the command learns from the data and writes into the config before the model is built
DATA_FACTS = ("vocab_size",)
# keys for which null means something although their default is a value
NULLABLE = ("clip_norm", "chunk_rows", "n_kv_heads", "d_head", "d_ff", "fast", "top_k", "top_p")

OmegaConf.register_new_resolver("run_id", lambda: os.urandom(2).hex(), use_cache=True, replace=True)


@dataclass
class Job:
    """What a command knows beside its config.

    Attributes:
        folder: where this job may write.
        choices: option chosen in each group, for example {"model": "gpt_tiny"}.
        overrides: what was typed.
        sweep: one of several jobs started by -m.
    """

    folder: Path
    choices: dict[str, str]
    overrides: list[str]
    sweep: bool


def config_dir() -> Path:
    """The folder of YAML files: inside an installed package, or beside it in a checkout."""
    here = Path(__file__).resolve().parent
    for place in (here / "configs", here.parent / "configs"):
        if (place / "train.yaml").is_file():
            return place
    raise ConfigError(f"minitf's configs are missing beside {here}: install minitf again")


def entry(name: str, work: Callable[[DictConfig, Job], None]) -> None:
    """Run `work` as a command with the config `name`: Hydra's command line, checks, one message for a mistake.

    Args:
        name: a file of the config folder, without ending.
        work: gets the checked config and the job.
    """

    def task(cfg: DictConfig) -> None:
        hydra_cfg = HydraConfig.get()
        job = Job(
            folder=Path(hydra_cfg.runtime.output_dir),
            choices=dict(hydra_cfg.runtime.choices),
            overrides=list(hydra_cfg.overrides.task),
            sweep=hydra_cfg.mode == RunMode.MULTIRUN,
        )
        # paths count from where the command was started, also with hydra.job.chdir=true
        os.chdir(hydra_cfg.runtime.cwd)
        # a failed job of a sweep must not end the others: there the message comes at the end
        with nullcontext() if job.sweep else friendly_errors(name):
            try:
                check(cfg, name, job.overrides)
                work(cfg, job)
            except Exception:
                _remove_if_empty(job.folder)
                raise

    # samples are text of any script, whatever the machine's locale; a sample must not fail a run
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    # Hydra would print its own shortened trace and hide ours
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    command = hydra.main(version_base="1.3", config_path=str(config_dir()), config_name=name)(task)
    with friendly_errors(name):
        command()


def _remove_if_empty(folder: Path) -> None:
    """A refused command leaves no empty folder behind."""
    if folder != Path.cwd() and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def take_raw(keys: Sequence[str]) -> dict[str, str]:
    """Take `key=text` arguments off the command line before Hydra reads it, so that the text stays as typed.

    Args:
        keys: names whose values are texts or paths, not YAML.

    Raises:
        SystemExit: a key was given twice.
    """
    taken: dict[str, str] = {}
    rest = []
    for arg in sys.argv[1:]:
        key, equals, text = arg.lstrip("+").partition("=")
        if not (equals and key in keys):
            rest.append(arg)
        elif key in taken:
            print(f"error: {key} was given twice: {taken[key]!r} and {text!r}", file=sys.stderr)
            sys.exit(2)
        else:
            taken[key] = text
    sys.argv[1:] = rest
    return taken


class friendly_errors:
    """Turn a user's mistake into one message on stderr and exit code 2; MINITF_TRACE=1 shows the trace as well."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, BrokenPipeError):
            # whoever reads our output has seen enough, as `head` has; the interpreter must not write the rest at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(141)
        if not isinstance(error, ConfigError | DataError | HydraException | OmegaConfBaseException | OSError):
            return False
        if os.environ.get("MINITF_TRACE"):
            traceback.print_exception(error)
        print(f"error: {explain(error, self.name)}", file=sys.stderr)
        sys.exit(2)


def explain(error: BaseException, name: str) -> str:
    """The message of an error, with the nearest known name where a key is unknown."""
    text = str(error).strip()
    if isinstance(error, ConfigError | DataError):
        return text
    if isinstance(error, OSError) and not isinstance(error, HydraException):
        return f"{error.strerror or text}: {error.filename}" if error.filename else text
    while error.__cause__ is not None and not text:
        error = error.__cause__
        text = str(error)
    hints = [hint for arg in sys.argv[1:] if (hint := _nearest_for(arg, name))]
    for noise in ("\nSet the environment variable", "\nConfig search path:", "\nTo append to your config"):
        text = text.split(noise)[0]
    return "\n".join([re.sub(r"\n\s*", "\n  ", text.strip()), *hints])


def _nearest_for(arg: str, name: str) -> str | None:
    key = arg.lstrip("+~").split("=", 1)[0].split("@")[0]
    if "=" not in arg or arg.startswith("-"):
        return None
    try:
        base = compose(name, [a for a in sys.argv[1:] if a.split("=")[0] in config_groups()])
    except HydraException:
        base = compose(name)
    known = {*known_keys(base), *config_groups()}
    if key in known:
        return None
    near = difflib.get_close_matches(key, sorted(known), n=3, cutoff=0.5)
    return f"'{key}' is no key or group of '{name}'" + (f"; nearest: {', '.join(near)}" if near else "")


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
