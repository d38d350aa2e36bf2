"""From a run folder back to the model: checked, so that loading a stranger's run executes nothing of theirs."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from minitf.config import build
from minitf.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

# only what a model is made of: minitf as a whole also holds code that writes files and starts pip
TRUSTED = ("minitf.blocks", "minitf.models", "minitf.lab", "torch.nn")
# what each part of a whole config is made of; all of them are built when a run goes on
TRUSTED_FOR = {
    "model": TRUSTED,
    "data": ("minitf.data",),
    "task": ("minitf.training.objective",),
    "optim": ("minitf.training.optim", "torch.optim"),
    "schedule": ("minitf.training.schedule",),
    "trainer": ("minitf.training.trainer",),
    "callbacks": ("minitf.training.callbacks",),
    "logger": ("minitf.training.loggers",),
}
# a config that may name the whole of these can run commands, load pickles or start pip
TOO_MUCH = ("minitf", "minitf.data", "torch", "torch.hub", "torch.utils", "torch.package", "torch.jit")
TOO_MUCH += ("numpy", "hydra", "omegaconf", "lightning", "datasets", "huggingface_hub", "transformers", "yaml", "pip")
# what only the running command may say: where files are written
NOT_STORED = {"logger": ("run_dir", "_args_"), "callbacks": ("run_dir", "_args_"), "trainer": ("run_dir", "_args_")}
DEEPEST = 64  # levels of a config; one that holds itself has no end


def load_run(
    path: str | Path, which: str | int = "best", allow: Sequence[str] = ()
) -> tuple[nn.Module, Any, DictConfig]:
    """A trained model from its run folder; nothing that the folder names is executed unless it is trusted.

    Args:
        path: folder of a run.
        which: "best" (lowest validation loss), "last" (newest), or the step of a snapshot, such as "400"; snapshots are
            kept with callbacks=snapshots or callbacks.snapshot_every=N.
        allow: names of further packages whose parts the config may use.

    Returns:
        the model in evaluation mode, its tokenizer (None where the data was no text), its config.

    Raises:
        ConfigError: no run, no such checkpoint, another shape, or a part from a package that is not trusted.
    """
    from minitf.data.tokenizer import FILE_NAME, load_tokenizer
    from minitf.training.checkpoint import find_checkpoint, load_weights, model_weights, read_checkpoint

    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ConfigError(f"there is no run folder {folder}: give the folder that training printed")
    if not (folder / "config.yaml").is_file():
        raise ConfigError(
            f"{folder} is no run folder of minitf (it has no config.yaml): give the one that training printed"
        )
    state = read_checkpoint(find_checkpoint(folder, which))
    config = state.get("config")
    if not isinstance(config, dict) or not isinstance(config.get("model"), dict):
        raise ConfigError(f"the checkpoint in {folder} holds no config of a minitf model: was it written by minitf?")
    _check_values(config)
    check_targets(config["model"], allow)
    cfg = OmegaConf.create(config)
    model = build(cfg.model)
    load_weights(model, model_weights(state))
    is_text = (folder / FILE_NAME).exists() or "tokenizer" in cfg.get("data", {})
    return model.eval(), load_tokenizer(folder) if is_text else None, cfg


def snapshots(path: str | Path) -> list[int]:
    """The steps whose weights a run has kept, in order; `load_run(path, which=step)` loads one.

    Args:
        path: folder of a run.
    """
    from minitf.training.checkpoint import FOLDER, checkpoints

    return sorted(step for step, _ in checkpoints(Path(path).expanduser() / FOLDER, "snapshot"))


def check_targets(node: Any, allow: Sequence[str] = ()) -> None:
    """Refuse any `_target_` that is not a class or function of TRUSTED or `allow`, and all but plain values.

    A run's config is resolved, so an interpolation in it, which could read the environment, is refused as well.

    Args:
        node: the part of a stored config that describes the model.
        allow: names of further packages whose parts it may use.

    Raises:
        ConfigError: names what is not trusted; nothing of it was imported.
    """
    _check_node(node, TRUSTED, check_allow(allow), classes_only=False)


def check_config(config: dict[str, Any], allow: Sequence[str] = ()) -> None:
    """Refuse a stored config unless each of its parts is made of what belongs there, before all of them are built.

    Args:
        config: a whole resolved config, as a checkpoint holds it.
        allow: names of further packages whose parts it may use anywhere.

    Raises:
        ConfigError: names what is not trusted; nothing of it was imported.
    """
    if type(config) is not dict:
        raise ConfigError(f"a run's config is a mapping, not a {type(config).__name__}: not loaded")
    allowed = check_allow(allow)
    _check_values(config)
    if "_target_" in config:
        raise ConfigError("this run's config is itself a part with a '_target_': not loaded")
    for name, node in config.items():
        if name in TRUSTED_FOR:
            _check_node(node, TRUSTED_FOR[name], allowed, classes_only=name == "data")
            for key in NOT_STORED.get(name, ()):
                if any(key in part for part in _parts(node)):
                    raise ConfigError(
                        f"this run's config says '{key}' in '{name}', which the command decides: not loaded"
                    )
        elif any(_parts(node)):
            raise ConfigError(
                f"this run's config has a part '{name}', which no run needs, with a '_target_'. It is not loaded; "
                f"parts are {', '.join(TRUSTED_FOR)}"
            )


def check_data(node: Any, allow: Sequence[str] = ()) -> None:
    """Refuse a stored config's data, or a part of it, unless it is made of what belongs there.

    Args:
        node: the part of a resolved config.
        allow: names of further packages whose parts it may use.

    Raises:
        ConfigError: names what is not trusted; nothing of it was imported.
    """
    _check_node(node, TRUSTED_FOR["data"], check_allow(allow), classes_only=True)


def _check_node(node: Any, trusted: Sequence[str], allow: Sequence[str], classes_only: bool) -> None:
    _check_values(node)
    for part in _parts(node):
        _check_target(part["_target_"], trusted, allow, classes_only)


def _check_values(node: Any, depth: int = 0) -> None:
    """Only what JSON knows, and no interpolation: Hydra would resolve it, or call an object that is a target."""
    if depth > DEEPEST:
        raise ConfigError(f"this run's config has more than {DEEPEST} levels: not loaded")
    if type(node) is dict:
        for key, child in node.items():
            if type(key) not in (str, int):
                raise ConfigError(f"this run's config has a key {key!r:.60} of type {type(key).__name__}: not loaded")
            _check_values(key)
            _check_values(child, depth + 1)
    elif type(node) in (list, tuple):
        for child in node:
            _check_values(child, depth + 1)
    elif type(node) is str:
        if "${" in node:
            raise ConfigError(
                f"this run's config holds an interpolation, {node!r:.80}, where only values belong: not loaded"
            )
    elif node is not None and type(node) not in (int, float, bool):
        raise ConfigError(f"this run's config holds a {type(node).__name__}, where only values belong: not loaded")


def _parts(node: Any) -> Iterator[dict]:
    """Every mapping with a `_target_`, wherever it hides."""
    if isinstance(node, dict) and "_target_" in node:
        yield node
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list | tuple) else ()
    for child in children:
        yield from _parts(child)


def check_allow(allow: Sequence[str]) -> tuple[str, ...]:
    """`allow` as a tuple. Raises ConfigError where it would trust far more than one package of the user's own."""
    if isinstance(allow, str):
        raise ConfigError(f"allow={allow!r} must be a list of package names: allow=[{allow!r}]")
    for name in allow:
        if not (isinstance(name, str) and all(part.isidentifier() for part in name.split("."))):
            raise ConfigError(f"allow: {name!r} is no name of a package")
        if name.split(".")[0] in sys.stdlib_module_names or name in TOO_MUCH:
            raise ConfigError(f"allow: {name!r} would let a stranger's config run anything: name your own package")
    return tuple(allow)


def _lies_in(name: Any, packages: Sequence[str]) -> bool:
    return isinstance(name, str) and any(name == package or name.startswith(f"{package}.") for package in packages)


def _check_target(target: Any, trusted: Sequence[str], allow: Sequence[str], classes_only: bool) -> None:
    """Refuse `target` unless it is a public class, or a function of a module, that was defined where it is trusted."""
    packages = (*trusted, *allow)
    refusal = f"this run names {target!r:.120}, which is not part of {', '.join(packages)}: it is not loaded"
    parts = target.split(".") if type(target) is str else []
    # asked before any import, which would already run the module's code
    if not (parts and target.isascii() and _lies_in(target.rpartition(".")[0], packages)):
        hint = f"; if you know that package, allow=[{parts[0]}] trusts it" if parts and parts[0].isidentifier() else ""
        raise ConfigError(refusal + hint)
    if not all(part.isidentifier() and not part.startswith("_") for part in parts):
        raise ConfigError(f"{refusal}: it is no public name")
    found = _locate(target, packages)
    home = getattr(found, "__module__", None)
    # the path may lead through a trusted module to something that was only imported there, or is no definition at all
    if not (_lies_in(home, packages) and (inspect.isclass(found) or inspect.isfunction(found))):
        raise ConfigError(refusal)
    if inspect.isfunction(found) and (found.__qualname__ != found.__name__ or found.__name__ == "<lambda>"):
        raise ConfigError(f"{refusal}: it is a method or a function inside another one")
    if not _lies_in(home, allow) and not _is_part(found, home, classes_only):
        raise ConfigError(f"{refusal}: it is a helper, not a part that a config builds")


def _is_part(found: Any, home: str, classes_only: bool) -> bool:
    """Whether a thing of a trusted package can be built without doing more than that."""
    if _lies_in(home, ["torch.nn"]):
        from torch import nn

        # of its functions some import modules by name, or set what holds for every model of this process
        return home == "torch.nn.functional" or (inspect.isclass(found) and issubclass(found, nn.Module))
    return inspect.isclass(found) or not classes_only


def _locate(target: str, packages: Sequence[str]) -> Any:
    """What `target` names, found as Hydra finds it: attributes first, else a module below a trusted package."""
    missing = f"this run names {target!r}, which does not exist in this version of minitf"
    parts = target.split(".")
    try:
        # a parent of a trusted package is imported with it, by Python itself
        start = max((package for package in packages if _lies_in(target, [package])), key=len)
        importlib.import_module(start)
        found: Any = sys.modules[parts[0]]
        for i, part in enumerate(parts[1:], start=2):
            path = ".".join(parts[:i])
            if not hasattr(found, part) and inspect.ismodule(found) and _lies_in(path, packages):
                importlib.import_module(path)
            found = getattr(found, part)
        return found
    except (ImportError, AttributeError) as error:
        raise ConfigError(missing) from error
