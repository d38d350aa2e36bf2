"""How a run stands, for people and for the next command: status.json in its folder."""

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from minitf.files import write_json

FILE = "status.json"
RUNNING, FINISHED, INTERRUPTED, FAILED = "running", "finished", "interrupted", "failed"


class Status:
    """Write the status of one run; each change is one atomic write.

    The file holds "status" (running, finished, interrupted or failed), "reason" (text or null), "step"
    (optimizer steps done), "started" and "ended" (ISO 8601, UTC; "ended" is null while it runs).

    Args:
        folder: the run's folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / FILE
        self._started = _now()

    def running(self, step: int = 0) -> None:
        """The run starts, or goes on from `step`."""
        self._started = _now()
        self._write(RUNNING, None, step)

    def finished(self, step: int) -> None:
        """All steps are done."""
        self._write(FINISHED, None, step)

    def interrupted(self, reason: str, step: int) -> None:
        """The run was asked to stop and can be resumed; `reason` names the signal."""
        self._write(INTERRUPTED, reason, step)

    def failed(self, reason: str, step: int) -> None:
        """The run ended by an error; `reason` is its message."""
        self._write(FAILED, reason, step)

    def _write(self, status: str, reason: str | None, step: int) -> None:
        ended = None if status == RUNNING else _now()
        write_json(
            self.path,
            {"status": status, "reason": reason, "step": step, "started": self._started, "ended": ended},
        )


def read_status(folder: str | Path) -> dict[str, Any] | None:
    """Return the content of a run's status.json, or None where there is none that can be read.

    Args:
        folder: the run's folder.
    """
    try:
        status = json.loads((Path(folder) / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return status if isinstance(status, dict) else None


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
