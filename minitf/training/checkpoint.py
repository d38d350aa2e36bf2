"""Checkpoints of a run: written whole or not at all, holding only plain containers and tensors."""

import re
from pathlib import Path
from typing import Any, BinaryIO

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Tensor, nn

from minitf.errors import ConfigError
from minitf.files import atomic_file

FOLDER = "checkpoints"
SHOWN = 6  # misfits that a message names
_NAME = re.compile(r"(best|last|snapshot)-step=(\d+)\.ckpt")


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
            out = _Remembering(file)
            try:
                torch.save(checkpoint, out)
            except Exception as error:
                # torch reports a full disk as a wrong position in its archive
                raise (out.error or error) from None

    def load_checkpoint(
        self,
        path: str | Path,
        map_location: Any = "cpu",
        weights_only: bool | None = True,
    ) -> dict[str, Any]:
        """Read a checkpoint, always with weights_only=True."""
        return read_checkpoint(path, map_location)


class _Remembering:
    """A file for writing that keeps the error that a write ended with."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, block: Any) -> int:
        try:
            return self._file.write(block)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self._file.flush()


def find_checkpoint(run_dir: str | Path, which: str | int = "best") -> Path:
    """Return the path of a run's checkpoint.

    Args:
        run_dir: the run's folder.
        which: "best", "last", or the step of a snapshot.

    Raises:
        ConfigError: no such folder or checkpoint; the message lists what is there.
    """
    is_step = str(which).isdecimal()
    if which not in ("best", "last") and not is_step:
        raise ConfigError(f"checkpoint ({which!r}) must be 'best', 'last', or the step of a snapshot")
    run_dir = Path(run_dir)
    if not run_dir.is_dir():
        raise ConfigError(f"there is no run folder {str(run_dir)!r}")
    found = checkpoints(run_dir / FOLDER, "snapshot" if is_step else str(which))
    found = [(step, path) for step, path in found if not is_step or step == int(which)]
    if not found:
        there = [item for kind in ("best", "last", "snapshot") for item in sorted(checkpoints(run_dir / FOLDER, kind))]
        names = ", ".join(path.name for _, path in there)
        names = names or "no checkpoint at all; was it stopped before its first one?"
        wanted = f"snapshot of step {which}" if is_step else f"{which!r} checkpoint"
        raise ConfigError(f"the run {str(run_dir)!r} has no {wanted}; it has {names}")
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
        shown = problems if len(problems) <= SHOWN else [*problems[:SHOWN], f"and {len(problems) - SHOWN} more"]
        raise ConfigError(
            "these weights do not fit the model; was it built from the same config?\n  " + "\n  ".join(shown)
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


def checkpoints(folder: Path, which: str) -> list[tuple[int, Path]]:
    """Return (step, path) of every checkpoint of a kind.

    Args:
        folder: the `checkpoints` of a run.
        which: "best", "last" or "snapshot".
    """
    matches = ((_NAME.fullmatch(path.name), path) for path in folder.glob(f"{which}-step=*.ckpt"))
    return [(int(match[2]), path) for match, path in matches if match]
