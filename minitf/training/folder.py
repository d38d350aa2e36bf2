"""A run's folder, held by one process at a time."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import TracebackType

from filelock import FileLock, Timeout

from minitf.errors import ConfigError
from minitf.files import remove_parts
from minitf.training.checkpoint import FOLDER, checkpoints

CONFIG_FILE = "config.yaml"


class HeldFolder:
    """Keep every other process from training in a folder; a context.

    The lock ends with the process, however it ends. What a killed process left half written is removed.

    Args:
        folder: the run's folder; its `checkpoints` is made.

    Raises:
        ConfigError: another process trains in it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = FileLock(folder / FOLDER / ".lock")

    def __enter__(self) -> HeldFolder:
        (self.folder / FOLDER).mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise ConfigError(
                f"another process is training in {self.folder} right now: wait for it, or stop it first"
            ) from None
        remove_parts(self.folder)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with suppress(OSError):  # Windows removes no file that is open
            Path(self._lock.lock_file).unlink()
        self._lock.release()
        if [path.name for path in self.folder.iterdir()] == [FOLDER] and not any((self.folder / FOLDER).iterdir()):
            (self.folder / FOLDER).rmdir()  # refused before anything was written


def holds_run(folder: Path) -> bool:
    """Whether a run has been begun in a folder: its config is there, or a checkpoint."""
    return (folder / CONFIG_FILE).exists() or any(checkpoints(folder / FOLDER, kind) for kind in ("last", "best"))
