"""Where metrics go. Each option of the group `logger` is a factory (run_dir, config, ...) -> loggers.

The local metrics.csv is always among them.
"""

import importlib.util
import os
from collections.abc import Mapping
from contextlib import suppress
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from minitf.errors import ConfigError
from minitf.files import atomic_file
from minitf.training.metrics import MetricsCsv


def csv(run_dir: str | Path, config: dict[str, Any]) -> list[Logger]:
    """Return the local metrics.csv alone.

    Args:
        run_dir: the run's folder.
        config: the resolved config; it is not needed here.
    """
    return [MetricsCsv(run_dir)]


class Wandb:
    """The local metrics.csv and a Weights & Biases run: a factory that is checked before it makes anything.

    Args:
        project: the project that the run belongs to.
        online: False: files that `wandb sync` can upload later; neither a key nor a network is needed.
        init_timeout: how long to wait for the server, in seconds.

    Raises:
        ConfigError: wandb is not installed, a value out of range, or online is set and no API key is known.
    """

    def __init__(self, project: str = "minitf", online: bool = False, init_timeout: float = 20.0) -> None:
        _check(project, online, init_timeout)
        self.project, self.online, self.init_timeout = project, online, init_timeout

    def __call__(self, run_dir: str | Path, config: dict[str, Any]) -> list[Logger]:
        """Return the two loggers.

        Args:
            run_dir: the run's folder; its name becomes the run's name, and the run's own files lie in it.
            config: the resolved config, shown with the run.

        Raises:
            ConfigError: online is set and no server answers.
        """
        return [MetricsCsv(run_dir), WandbRun(run_dir, config, self.project, self.online, self.init_timeout)]


class WandbRun(Logger):
    """One Weights & Biases run of its own, also where other runs of this process came before.

    The run begins with the first metrics (an online one at once) and ends with the training. Metrics that come
    later, also those of a resumed run, open it again under the same id, which is kept in wandb/run-id.txt.

    Args:
        run_dir, config, project, online, init_timeout: see `Wandb`.

    Raises:
        ConfigError: wandb is not installed, or online is set and no API key is known or no server answers.
    """

    def __init__(
        self,
        run_dir: str | Path,
        config: dict[str, Any],
        project: str = "minitf",
        online: bool = False,
        init_timeout: float = 20.0,
    ) -> None:
        super().__init__()
        _check(project, online, init_timeout)
        self._run_dir, self._config = Path(run_dir), config
        self._project, self._online, self._init_timeout = project, online, init_timeout
        self._run: Any = None
        self._id_file = self._run_dir / "wandb" / "run-id.txt"
        self._id = self._id_file.read_text(encoding="utf-8").strip() if self._id_file.is_file() else None
        if online:
            self._begin_now()

    @rank_zero_only
    def _begin_now(self) -> None:
        """Meet a server that cannot be reached before training, not at its first metrics."""
        import wandb as library

        try:
            _ = self.experiment
        except library.errors.Error as error:
            raise ConfigError(
                f"logger.online=true, but the wandb run could not begin ({error}). Check the network and the key,"
                " or leave logger.online=false and upload later with wandb sync"
            ) from error

    @property
    def name(self) -> str:
        """Return the project."""
        return self._project

    @property
    def version(self) -> str | None:
        """Return the id of the run; None before it has begun."""
        return self._id

    @property
    def save_dir(self) -> str:
        """Return the run's folder."""
        return str(self._run_dir)

    @property
    def experiment(self) -> Any:
        """Return the open wandb run, begun if necessary."""
        if self._run is None:
            import wandb as library

            self._run_dir.mkdir(parents=True, exist_ok=True)
            self._run = library.init(
                project=self._project,
                name=self._run_dir.name,
                id=self._id,
                resume="allow",
                dir=str(self._run_dir),
                config=self._config,
                mode="online" if self._online else "offline",
                reinit="create_new",  # never another run of this process
                settings=library.Settings(init_timeout=self._init_timeout, silent=True, console="off"),
            )
            if self._id != self._run.id:
                self._id = self._run.id
                with atomic_file(self._id_file) as file:
                    file.write(self._id.encode("utf-8"))
        return self._run

    @rank_zero_only
    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the config is given when the run begins."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log metrics at a number of optimizer steps done.

        Args:
            metrics: name -> value.
            step: optimizer steps done; calls with the same step are merged.
        """
        self.experiment.log(dict(metrics), step=step)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """End the run."""
        if self._run is not None:
            self._run.finish(exit_code=0 if status == "success" else 1)
            self._run = None


def _check(project: str, online: bool, init_timeout: float) -> None:
    if not isinstance(project, str) or not project.strip():
        raise ConfigError(f"logger.project must be a name, got {project!r}: a number needs quotes, '\"2024\"'")
    if not 0 < init_timeout < float("inf"):
        raise ConfigError(f"logger.init_timeout ({init_timeout}) must be a number of seconds above 0")
    if importlib.util.find_spec("wandb") is None:
        raise ConfigError("logger=wandb needs the package wandb. Install it with: pip install wandb, or use logger=csv")
    if online and not _has_key():
        raise ConfigError(
            "logger.online=true needs an API key, and none is known. Run: wandb login, or set WANDB_API_KEY,"
            " or leave logger.online=false and upload later with wandb sync"
        )


def _has_key() -> bool:
    """Tell whether wandb would find a key, without starting it or asking anybody."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    host = urlparse(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    named = os.environ.get("NETRC")
    for path in [Path(named)] if named else [Path.home() / ".netrc", Path.home() / "_netrc"]:
        with suppress(OSError, NetrcParseError):
            if netrc(path).authenticators(host):
                return True
    return False
