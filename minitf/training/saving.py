"""When a run is saved, and as what."""

import os
import time
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Checkpoint

from minitf.files import atomic_file
from minitf.training.checkpoint import FOLDER, checkpoints
from minitf.training.guard import Diverged
from minitf.training.snapshots import SnapshotSchedule
from minitf.training.stop import Interrupted, StopSignals


class RunCheckpoint(Checkpoint):
    """Keep `last-step=N.ckpt`, truly the newest, and `best-step=N.ckpt`, the lowest validation loss.

    Both are brought up to date after each validation. `last` is also saved every `save_every` steps, at the end,
    when somebody wants the run to stop, and when it diverges. A checkpoint of a step is saved when everything that
    belongs to the step is done: its metrics are recorded, and so is its validation, if one is due. A new file is
    complete before the old one is removed, so there is always a good one.

    Args:
        run_dir: the run's folder; the files lie in its `checkpoints`.
        config: the resolved config, plain dicts, lists, strings, numbers, bools and None; kept in each file.
        save_every: save `last` every so many steps; None: not between validations.
        snapshots: of which steps the weights are kept as `snapshot-step=N.ckpt`; a number: of every so many; None: of
            none.
        stop: says when somebody wants the run to stop; None: nobody will.
        monitor: the metric whose lowest value is best.

    Raises:
        TypeError: config holds anything else, which loading with weights_only=True would refuse.

    Attributes:
        has_started: training has begun; everything that was stored has been taken over by then.
        seconds: spent on training and validation, earlier parts of a resumed run included.
    """

    def __init__(
        self,
        run_dir: str | Path,
        config: dict[str, Any],
        save_every: int | None = None,
        snapshots: SnapshotSchedule | int | None = None,
        stop: StopSignals | None = None,
        monitor: str = "val/loss",
    ) -> None:
        _check_plain(config, "config")
        self.folder = Path(run_dir) / FOLDER
        self.config = config
        self.save_every = save_every
        self.snapshots = snapshots if isinstance(snapshots, SnapshotSchedule) else SnapshotSchedule(every=snapshots)
        self.stop = stop
        self.monitor = monitor
        self.best_value = float("inf")
        self.best_step = -1
        self.saved_step = -1
        self.has_started = False
        self._earlier_seconds = 0.0
        self._start: float | None = None

    @property
    def seconds(self) -> float:
        """Return the time spent so far."""
        return self._earlier_seconds + (time.perf_counter() - self._start if self._start is not None else 0.0)

    # When -------------------------------------------------------------------------------------------------

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the clock; keep the untrained weights if asked to; finish what a killed run left half done."""
        self._start, self.has_started = time.perf_counter(), True
        if self.stop is not None:
            self.stop.take_over()  # Lightning has put its own handlers in place
        if trainer.ckpt_path:
            self.saved_step = trainer.global_step
            if self.best_step == self.saved_step:
                self._keep_as_best(trainer)
        elif self.snapshots.due(0):
            self._save_snapshot(trainer)

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Save what is due after a step that no validation follows."""
        step_is_complete = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        if step_is_complete and not _validation_follows(trainer):
            self._end_step(trainer)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save `last`, and `best` if this was the lowest loss so far."""
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        value = trainer.callback_metrics.get(self.monitor)
        improved = value is not None and float(value) < self.best_value
        if improved:  # before saving: the file must know that it is the best
            self.best_value, self.best_step = float(value), trainer.global_step
        self._end_step(trainer, validated=True)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save `last` if steps were made since it was saved; stop the clock."""
        if trainer.global_step > self.saved_step:
            self.save_last(trainer)
        self._earlier_seconds, self._start = self.seconds, None

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Save the weights from before a step that was not finite."""
        if isinstance(exception, Diverged) and trainer.global_step > self.saved_step:
            self.save_last(trainer)

    def _end_step(self, trainer: L.Trainer, validated: bool = False) -> None:
        """Save what is due; `last` after the snapshot, because a killed run goes on from it, behind the snapshot."""
        step = trainer.global_step
        stop = self._wish_to_stop(trainer)
        if self.snapshots.due(step):
            self._save_snapshot(trainer)
        if validated or stop or _due(step, self.save_every):
            self.save_last(trainer)
        if validated and self.best_step == step:
            self._keep_as_best(trainer)
        if stop and step < trainer.max_steps:
            raise Interrupted(stop)

    def _wish_to_stop(self, trainer: L.Trainer) -> str | None:
        """The signal that came, in whichever process: all of them must stop at the same step."""
        if self.stop is None:
            return None
        requested = self.stop.requested
        if trainer.world_size > 1 and trainer.strategy.reduce_boolean_decision(requested is not None, all=False):
            return requested or "SIGTERM"
        return requested

    # How --------------------------------------------------------------------------------------------------

    def save_last(self, trainer: L.Trainer) -> Path:
        """Write `last` at the current step, then remove older ones. Every process must call it.

        Returns:
            The file written.
        """
        step = trainer.global_step
        path = self._path("last", step)
        trainer.save_checkpoint(path)
        self.saved_step = step
        if trainer.is_global_zero:
            self._remove_others("last", step)
        return path

    def _save_snapshot(self, trainer: L.Trainer) -> None:
        """Weights and config, without what is needed to train on."""
        step = trainer.global_step
        weights = trainer.strategy.lightning_module_state_dict()
        snapshot = {"state_dict": weights, "config": self.config, "global_step": step}
        trainer.strategy.save_checkpoint(snapshot, self._path("snapshot", step))

    def _keep_as_best(self, trainer: L.Trainer) -> None:
        if trainer.is_global_zero:
            _link_or_copy(self._path("last", self.best_step), self._path("best", self.best_step))
            self._remove_others("best", self.best_step)

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Put the config into the file; in the middle of a step, count only the steps that are complete."""
        checkpoint["config"] = self.config
        _count_whole_steps(checkpoint["loops"]["fit_loop"], trainer.accumulate_grad_batches)

    def state_dict(self) -> dict[str, Any]:
        """Return the best value and its step, and the time spent."""
        return {"best_value": self.best_value, "best_step": self.best_step, "seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take them over, so that a resumed run does not call a worse one best."""
        self.best_value, self.best_step = state_dict["best_value"], state_dict["best_step"]
        self._earlier_seconds = state_dict["seconds"]

    def _path(self, which: str, step: int) -> Path:
        return self.folder / f"{which}-step={step}.ckpt"

    def _remove_others(self, which: str, step: int) -> None:
        for other_step, path in checkpoints(self.folder, which):
            if other_step != step:
                path.unlink(missing_ok=True)


def _validation_follows(trainer: L.Trainer) -> bool:
    """Whether a validation comes after this step: at each interval, and after the last step (ValidateAtEnd)."""
    every = trainer.val_check_interval // trainer.accumulate_grad_batches
    return trainer.global_step % every == 0 or trainer.global_step >= trainer.max_steps


def _due(step: int, every: int | None) -> bool:
    return every is not None and step % every == 0


def _count_whole_steps(fit_loop: dict[str, Any], n_micro: int) -> None:
    """Take a step that was begun and not made out of Lightning's counters, as if it had never been begun."""
    progress = fit_loop["epoch_loop.batch_progress"]
    optimizer = fit_loop["epoch_loop.automatic_optimization.optim_progress"]["optimizer"]
    n_steps = optimizer["step"]["total"]["completed"]
    if optimizer["step"]["total"]["ready"] == n_steps:
        return
    extra = progress["total"]["completed"] - n_steps * n_micro
    for scope in ("total", "current"):
        done = progress[scope]["completed"] - extra
        progress[scope].update(ready=done, started=done, processed=done, completed=done)
        for counter in (optimizer["step"], optimizer["zero_grad"]):
            counter[scope].update(dict.fromkeys(counter[scope], counter[scope]["completed"]))


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
