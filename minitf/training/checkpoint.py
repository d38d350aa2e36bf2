"""Checkpoints of a run: written whole or not at all, holding only plain containers and tensors."""

import os
import re
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Tensor, nn

from minitf.errors import ConfigError
from minitf.files import atomic_file

FOLDER = "checkpoints"
_NAME = re.compile(r"(best|last)-step=(\d+)\.ckpt")


class AtomicCheckpointIO(TorchCheckpointIO):
    """Write checkpoints whole or not at all, and read them without executing anything (a Trainer plugin)."""

    def save_checkpoint(
        self,
        checkpoint: dict[str, Any],
        path: str | Path,
        storage_options: Any = None,
    ) -> None:
        """Write `checkpoint` under `path`; an older file of that name stays good until the new one is complete."""
        with atomic_file(path) as file:
            torch.save(checkpoint, file)

    def load_checkpoint(
        self,
        path: str | Path,
        map_location: Any = "cpu",
        weights_only: bool | None = True,
    ) -> dict[str, Any]:
        """Read a checkpoint, always with weights_only=True."""
        return read_checkpoint(path, map_location)


class RunCheckpoint(Checkpoint):
    """Keep `last-step=N.ckpt`, truly the newest, and `best-step=N.ckpt`, the lowest validation loss.

    Both are brought up to date after each validation, and `last` once more at the end. A new file is complete
    before the old one is removed, so there is always a good one.

    Args:
        run_dir: the run's folder; the files lie in its `checkpoints`.
        config: the resolved config, plain dicts, lists, strings, numbers, bools and None; kept in each file.
        monitor: the metric whose lowest value is best.

    Raises:
        TypeError: config holds anything else, which loading with weights_only=True would refuse.
    """

    def __init__(self, run_dir: str | Path, config: dict[str, Any], monitor: str = "val/loss") -> None:
        _check_plain(config, "config")
        self.folder = Path(run_dir) / FOLDER
        self.config = config
        self.monitor = monitor
        self.best_value = float("inf")
        self.best_step = -1
        self._saved_step = -1

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save `last`, and `best` if this was the lowest loss so far."""
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        value = trainer.callback_metrics.get(self.monitor)
        improved = value is not None and float(value) < self.best_value
        if improved:  # before saving: the file must know that it is the best
            self.best_value, self.best_step = float(value), trainer.global_step
        self.save_last(trainer)
        if improved and trainer.is_global_zero:
            _link_or_copy(self._path("last", self.best_step), self._path("best", self.best_step))
            self._remove_others("best", self.best_step)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save `last` if steps were made since the last validation."""
        if trainer.global_step > self._saved_step:
            self.save_last(trainer)

    def save_last(self, trainer: L.Trainer) -> Path:
        """Write `last` at the current step, then remove older ones. Every process must call it.

        Returns:
            The file written.
        """
        step = trainer.global_step
        path = self._path("last", step)
        trainer.save_checkpoint(path)
        self._saved_step = step
        if trainer.is_global_zero:
            self._remove_others("last", step)
        return path

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Put the config into the file."""
        checkpoint["config"] = self.config

    def state_dict(self) -> dict[str, Any]:
        """Return the best value and its step."""
        return {"best_value": self.best_value, "best_step": self.best_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the best value and its step, so that a resumed run does not call a worse one best."""
        self.best_value, self.best_step = state_dict["best_value"], state_dict["best_step"]

    def _path(self, which: str, step: int) -> Path:
        return self.folder / f"{which}-step={step}.ckpt"

    def _remove_others(self, which: str, step: int) -> None:
        for other_step, path in _checkpoints(self.folder, which):
            if other_step != step:
                path.unlink(missing_ok=True)


def find_checkpoint(run_dir: str | Path, which: str = "best") -> Path:
    """Return the path of a run's checkpoint.

    Args:
        run_dir: the run's folder.
        which: "best" or "last".

    Raises:
        ConfigError: no such folder or checkpoint; the message lists what is there.
    """
    if which not in ("best", "last"):
        raise ConfigError(f"checkpoint ({which!r}) must be 'best' or 'last'")
    run_dir = Path(run_dir)
    if not run_dir.is_dir():
        raise ConfigError(f"there is no run folder {str(run_dir)!r}")
    found = _checkpoints(run_dir / FOLDER, which)
    if not found:
        there = sorted(path.name for w in ("best", "last") for _, path in _checkpoints(run_dir / FOLDER, w))
        names = ", ".join(there) or "no checkpoint at all; was it stopped before its first validation?"
        raise ConfigError(f"the run {str(run_dir)!r} has no {which!r} checkpoint; it has {names}")
    return max(found)[1]  # a run killed between writing the new and removing the old one has both


def read_checkpoint(path: str | Path, map_location: Any = "cpu") -> dict[str, Any]:
    """Load a checkpoint with weights_only=True: nothing in it is executed.

    Args:
        path: the file.
        map_location: as in torch.load.

    Raises:
        ConfigError: the file is missing, cut short, no checkpoint, or holds more than containers and tensors.
    """
    try:
        return torch.load(path, map_location=map_location, weights_only=True)
    except FileNotFoundError:
        raise ConfigError(f"there is no checkpoint {str(path)!r}") from None
    except Exception as error:  # on foreign bytes the unpickler raises whatever it trips over
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(
            f"{str(path)!r} cannot be read as a checkpoint ({reason}). It may be cut short or come from another"
            " program; use another checkpoint of the run"
        ) from error


def model_weights(checkpoint: dict[str, Any]) -> dict[str, Tensor]:
    """Return the model's own tensors of a run's checkpoint, under the model's own names.

    Args:
        checkpoint: what read_checkpoint returned.

    Raises:
        ConfigError: it holds no weights of a model.
    """
    prefix = "model."
    state = checkpoint.get("state_dict", {}) if isinstance(checkpoint, dict) else {}
    weights = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
    if not weights:
        raise ConfigError("this checkpoint holds no model weights (no names 'model.*' under 'state_dict')")
    return weights


def load_weights(model: nn.Module, state_dict: dict[str, Tensor]) -> None:
    """Load weights into a model: all of them, each with its own shape, or none.

    Names saved by a torch.compile wrapper ("_orig_mod.") count as the plain ones.

    Args:
        model: takes the weights; a shared weight stays shared.
        state_dict: name -> tensor, the model's own names.

    Raises:
        ConfigError: names missing, unexpected or of another shape, each listed; or one shared weight for which
            two different tensors are stored. The model is then unchanged.
    """
    stored = {_plain_name(name): value for name, value in state_dict.items()}
    wanted = {_plain_name(name): (name, value) for name, value in model.state_dict().items()}
    problems = [f"missing: {name}" for name in wanted if name not in stored]
    problems += [f"unexpected: {name}" for name in stored if name not in wanted]
    problems += [
        f"shape of {name}: {tuple(stored[name].shape)} stored, {tuple(value.shape)} in the model"
        for name, (_, value) in wanted.items()
        if name in stored and stored[name].shape != value.shape
    ]
    problems += _torn_apart({name: value for name, (_, value) in wanted.items()}, stored)
    if problems:
        raise ConfigError(
            "these weights do not fit the model; was it built from the same config?\n  " + "\n  ".join(problems)
        )
    model.load_state_dict({name: stored[plain] for plain, (name, _) in wanted.items()})


def _torn_apart(wanted: dict[str, Tensor], stored: dict[str, Tensor]) -> list[str]:
    """Name pairs that share one tensor in the model but are stored with different values."""
    first_name: dict[tuple, str] = {}
    problems = []
    for name, value in wanted.items():
        first = first_name.setdefault((value.data_ptr(), value.shape, value.stride()), name)
        if first == name or name not in stored or first not in stored or value.numel() == 0:
            continue
        if not torch.equal(stored[first], stored[name]):
            problems.append(f"{first} and {name} are one shared weight, but two different tensors are stored")
    return problems


def _plain_name(name: str) -> str:
    return name.replace("_orig_mod.", "")


def _checkpoints(folder: Path, which: str) -> list[tuple[int, Path]]:
    matches = ((_NAME.fullmatch(path.name), path) for path in folder.glob(f"{which}-step=*.ckpt"))
    return [(int(match[2]), path) for match, path in matches if match]


def _link_or_copy(source: Path, target: Path) -> None:
    """Give a finished checkpoint a second name: a link where the file system has them, since files never change."""
    temporary = target.with_name(f".tmp-{target.name}-{os.getpid()}.part")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:
        with atomic_file(target) as out, open(source, "rb") as file:
            while block := file.read(1 << 20):
                out.write(block)
        return
    os.replace(temporary, target)
    temporary.unlink(missing_ok=True)  # renaming over another name of the same file leaves both


def _check_plain(value: Any, where: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if type(key) not in (str, int):
                raise TypeError(f"{where}: the key {key!r} is no string")
            _check_plain(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            _check_plain(item, f"{where}[{i}]")
    elif value is not None and type(value) not in (str, int, float, bool):
        raise TypeError(f"{where} is a {type(value).__name__}; a checkpoint holds plain values only")
