"""From a run folder back to the model: checked, so that loading a stranger's run executes nothing of theirs."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from minitf.config import build
from minitf.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

# only what a model is made of: minitf as a whole also holds code that writes files and starts pip
TRUSTED = ("minitf.blocks", "minitf.models", "torch.nn")


def load_run(path: str | Path, which: str = "best", allow: Sequence[str] = ()) -> tuple[nn.Module, Any, DictConfig]:
    """A trained model from its run folder; nothing that the folder names is executed unless it is trusted.

    Args:
        path: folder of a run.
        which: "best" (lowest validation loss) or "last".
        allow: names of further packages whose parts the config may use.

    Returns:
        the model in evaluation mode, its tokenizer, its config.

    Raises:
        ConfigError: no run, no such checkpoint, another shape, or a part from a package that is not trusted.
    """
    from minitf.data.tokenizer import load_tokenizer
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
    check_targets(config["model"], allow)
    cfg = OmegaConf.create(config)
    model = build(cfg.model)
    load_weights(model, model_weights(state))
    return model.eval(), load_tokenizer(folder), cfg


def check_targets(node: Any, allow: Sequence[str] = ()) -> None:
    """Refuse any `_target_` whose object is defined outside of TRUSTED and `allow`.

    A run's config is resolved, so an interpolation in it, which could read the environment, is refused as well.
    """
    if isinstance(node, list | tuple):
        for child in node:
            check_targets(child, allow)
    if isinstance(node, str) and "${" in node:
        raise ConfigError(f"this run's config holds an interpolation, {node!r}, where only values belong: not loaded")
    if not isinstance(node, dict):
        return
    if "_target_" in node:
        _check_target(str(node["_target_"]), (*TRUSTED, *allow))
    for child in node.values():
        check_targets(child, allow)


def _check_target(target: str, trusted: Sequence[str]) -> None:
    def lies_in(name: str) -> bool:
        return any(name == package or name.startswith(f"{package}.") for package in trusted)

    refusal = f"this run names '{target}', which is not part of {', '.join(trusted)}: it is not loaded"
    module_name, _, attribute = target.rpartition(".")
    # asked before the import, which would already run the module's code
    if not lies_in(module_name):
        raise ConfigError(f"{refusal}; load_run(..., allow=['package']) trusts another package")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"this run names '{target}', which does not exist in this version of minitf") from error
    # the path may lead through a trusted module to something that was only imported there
    if not (callable(found) and lies_in(getattr(found, "__module__", None) or "")):
        raise ConfigError(refusal)
