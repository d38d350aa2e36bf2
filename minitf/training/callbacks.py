"""What happens beside the training steps: progress, the last validation, compilation, and a quieter Lightning."""

import logging
import math
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, TQDMProgressBar

from minitf.errors import ConfigError
from minitf.training.health import Health
from minitf.training.saving import RunCheckpoint
from minitf.training.snapshots import SnapshotSchedule
from minitf.training.stop import StopSignals

# metric -> (short name, format); what a progress line shows, in this order
_ITEMS = {
    "train/loss": ("loss", "{:.3f}"),
    "val/loss": ("val", "{:.3f}"),
    "val/bits_per_byte": ("bits/byte", "{:.3f}"),
    "train/lr": ("lr", "{:.2e}"),
    "train/tokens_per_s": ("tokens/s", "{:,.0f}"),
}


def default_callbacks(
    run_dir: str | Path,
    config: dict[str, Any],
    stop: StopSignals,
    every_seconds: float = 10.0,
    save_every: int | None = None,
    snapshot_every: int | None = None,
    snapshot_log: int | None = None,
    snapshot_steps: Sequence[int] = (),
    health_every: int | None = None,
    health_rows: int = 4,
) -> list[Callback]:
    """Return the usual callbacks of a run: progress and checkpoints, and if asked for the health of its layers.

    Args:
        run_dir: the run's folder.
        config: the resolved config, plain; it is kept in each checkpoint.
        stop: says when somebody wants the run to stop.
        every_seconds: how often a progress line comes where standard output is no terminal.
        save_every: save `last` every so many steps, besides after each validation; None: only then.
        snapshot_every: keep the weights of every so many steps for good; None: keep none.
        snapshot_log: keep them on a log schedule, so many for each doubling: 1 is steps 0, 1, 2, 4, 8, ...; None: none.
        snapshot_steps: keep those of these steps as well.
        health_every, health_rows: `every` and `rows` of `Health`; None: no such callback.

    Raises:
        ConfigError: a number out of range.
    """
    if not 0 <= every_seconds < math.inf:
        raise ConfigError(f"callbacks.every_seconds ({every_seconds}) must be 0 or more seconds")
    counts = {"save_every": save_every, "snapshot_every": snapshot_every, "snapshot_log": snapshot_log}
    for name, every in {**counts, "health_every": health_every}.items():
        if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 1):
            raise ConfigError(f"callbacks.{name} ({every!r}) must be a whole number of at least 1, or null for never")
    if odd := [step for step in snapshot_steps if isinstance(step, bool) or not isinstance(step, int) or step < 0]:
        raise ConfigError(
            f"callbacks.snapshot_steps holds {odd[0]!r}: give whole numbers of steps, such as [0,100,150]"
        )
    schedule = SnapshotSchedule(snapshot_every, snapshot_log, tuple(snapshot_steps))
    watch = [] if health_every is None else [Health(health_every, health_rows)]
    progress = StepBar() if sys.stdout.isatty() else PlainProgress(every_seconds)
    return [progress, *watch, RunCheckpoint(run_dir, config, save_every, schedule, stop)]


class PlainProgress(Callback):
    """Print one plain line now and then, for logs and pipes.

    A line comes with the first recorded training metrics, then with the newest ones whenever `every_seconds`
    have gone by, and after each validation.

    Args:
        every_seconds: shortest time between two lines about training.
        clock: seconds from any fixed point.
    """

    def __init__(self, every_seconds: float = 10.0, clock: Callable[[], float] = time.perf_counter) -> None:
        self.every_seconds = every_seconds
        self._clock = clock
        self._start, self._start_step = 0.0, 0
        self._next_line = 0.0
        self._shown = -1

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the clock."""
        self._start = self._next_line = self._clock()
        self._start_step = self._shown = trainer.global_step

    def on_train_batch_start(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Print what the last step recorded, if it is time (here, because the task records after callbacks)."""
        if pl_module.recorded_step > self._shown and self._clock() >= self._next_line:
            self._print(trainer, pl_module, "train/")

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Print the validation loss, with the training loss of the same step where there is one."""
        if not trainer.sanity_checking and trainer.state.fn == "fit":
            fresh = pl_module.recorded_step == trainer.global_step
            self._print(trainer, pl_module, *(("train/", "val/") if fresh else ("val/",)))

    def _print(self, trainer: L.Trainer, task: L.LightningModule, *prefixes: str) -> None:
        now = self._clock()
        self._next_line = now + self.every_seconds
        self._shown = task.recorded_step
        if not trainer.is_global_zero:
            return
        done, total = trainer.global_step, trainer.max_steps
        items = progress_items(trainer.callback_metrics)
        words = [f"{name} {text}" for metric, (name, text) in items.items() if metric.startswith(prefixes)]
        seconds = (now - self._start) / max(1, done - self._start_step) * (total - done)
        words.append(f"{format_seconds(seconds)} left" if done < total else "done")
        print(f"step {done}/{total}  " + "  ".join(words), flush=True)


class StepBar(TQDMProgressBar):
    """Lightning's bar for a terminal, counting optimizer steps and showing the numbers of _ITEMS."""

    def on_train_epoch_start(self, trainer: L.Trainer, *args: Any) -> None:
        """Set the bar to the steps of the whole run."""
        bar = self.train_progress_bar
        bar.reset(trainer.max_steps)
        bar.n = trainer.global_step
        bar.set_description("step")

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Move on with each optimizer step; tqdm itself draws at most ten times a second."""
        bar = self.train_progress_bar
        if pl_module.recorded_step == bar.n:
            bar.set_postfix(self.get_metrics(trainer, pl_module), refresh=False)
        if trainer.global_step > bar.n:
            bar.update(trainer.global_step - bar.n)

    def get_metrics(self, trainer: L.Trainer, pl_module: L.LightningModule) -> dict[str, str]:
        """Return short name -> text of the metrics there are."""
        return dict(progress_items(trainer.callback_metrics).values())


class ValidateAtEnd(Callback):
    """Validate after the last step too, wherever the validation interval has it."""

    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Ask Lightning to stop after the last step: before it stops, it validates."""
        if trainer.global_step >= trainer.max_steps > 0:
            trainer.should_stop = True


class CompileObjective(Callback):
    """Run model and loss as one graph by torch.compile; the model itself, and its names, stay as they are."""

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Replace the task's objective by its compiled form, once."""
        if pl_module.objective is pl_module.plain_objective:
            pl_module.objective = torch.compile(pl_module.plain_objective.__call__)


def progress_items(metrics: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return metric -> (short name, formatted value) for the metrics that a progress line shows.

    Args:
        metrics: name -> number or scalar tensor.
    """
    return {m: (name, form.format(float(metrics[m]))) for m, (name, form) in _ITEMS.items() if m in metrics}


def format_seconds(seconds: float) -> str:
    """Return a duration as people say it: 8 s, 4 min 05 s, 2 h 03 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def quiet_lightning() -> None:
    """Let Lightning speak only when something is wrong, and only once.

    Its own handlers double every message where the root logger has a handler (as under Hydra), and each Trainer
    reports devices and advertises other packages.
    """
    for name in ("lightning", "lightning.pytorch", "lightning.fabric"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.WARNING)
    # a stream of batches made in this process has no workers, and its place is a function of the step
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    warnings.filterwarnings("ignore", message=".*your dataloader is not resumable.*")
    warnings.filterwarnings("ignore", message=".*is smaller than the logging interval.*")
    # Lightning's own use of a torch name that is going away
    warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\).*")
