"""The Lightning Trainer of a run, from the settings of the group `trainer`."""

import inspect
import math
from collections.abc import Sequence
from pathlib import Path

import lightning as L
from lightning.pytorch.callbacks import Callback, Checkpoint, ProgressBar
from lightning.pytorch.loggers import Logger
from lightning.pytorch.plugins.environments import LightningEnvironment, TorchElasticEnvironment
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy, Strategy
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch.nn.parallel import DistributedDataParallel

from minitf.errors import ConfigError
from minitf.training.callbacks import CompileObjective, ValidateAtEnd
from minitf.training.checkpoint import AtomicCheckpointIO
from minitf.training.launched import from_torchrun, rank
from minitf.training.precision import resolve_precision
from minitf.training.processes import Agreement, layout

MAX_COUNT = 10**12  # what is counted from it, micro-batches for example, must fit into 64 bits
STRATEGIES = ("auto", "ddp", "fsdp")


def make_trainer(
    run_dir: str | Path,
    loggers: Sequence[Logger],
    callbacks: Sequence[Callback],
    max_steps: int,
    val_every: int,
    log_every: int,
    accumulate: int = 1,
    clip_norm: float | None = 1.0,
    precision: str = "auto",
    compile: bool = False,
    accelerator: str = "auto",
    devices: int = 1,
    strategy: str = "auto",
) -> L.Trainer:
    """Build the Trainer; every count is in optimizer steps.

    Args:
        run_dir: the run's folder.
        loggers: where metrics go.
        callbacks: what else happens; a RunCheckpoint among them saves checkpoints.
        max_steps: length of the run.
        val_every: validation after every so many steps, and after the last one.
        log_every: training metrics after every so many steps; the Task takes the same number.
        accumulate: micro-batches per step.
        clip_norm: largest norm of the gradient; None: no clipping.
        precision: "auto" or a precision of Lightning's (see resolve_precision).
        compile: run the objective through torch.compile; names of weights stay as they are.
        accelerator: as in lightning.Trainer.
        devices: processes on this machine, each with a device of its own; torchrun's number wins.
        strategy: "ddp": every process has the whole model; "fsdp": its parameters are spread over the processes;
            "auto": ddp where there are several.

    Raises:
        ConfigError: a number out of range, or an unknown precision, strategy or accelerator.
    """
    counts = {"max_steps": max_steps, "val_every": val_every, "log_every": log_every, "accumulate": accumulate}
    for name, count in {**counts, "devices": devices}.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ConfigError(f"trainer.{name} ({count!r}) must be a whole number of at least 1")
        if count > MAX_COUNT:
            raise ConfigError(f"trainer.{name} ({count}) is more than {MAX_COUNT}: choose a smaller number")
    if clip_norm is not None and not 0 < clip_norm < math.inf:
        raise ConfigError(f"trainer.clip_norm ({clip_norm}) must be a number above 0, or null for no clipping")
    if strategy not in STRATEGIES:
        raise ConfigError(f"trainer.strategy ({strategy!r}) must be one of {', '.join(STRATEGIES)}")
    devices, num_nodes = layout(devices)
    callbacks = [*callbacks, Agreement(), ValidateAtEnd()]
    if compile:
        callbacks.append(CompileObjective())
    precision = resolve_precision(precision, accelerator)
    try:
        return L.Trainer(
            default_root_dir=str(run_dir),
            # Lightning begins the run of a logger in every process, although only process 0 logs
            logger=list(loggers) if rank() == 0 else [],
            callbacks=callbacks,
            max_steps=max_steps,
            # without epochs the interval counts batches from the start of the run and may be longer than the data
            check_val_every_n_epoch=None,
            val_check_interval=val_every * accumulate,
            num_sanity_val_steps=0,
            log_every_n_steps=log_every,
            accumulate_grad_batches=accumulate,
            gradient_clip_val=clip_norm,
            precision=precision,
            accelerator=accelerator,
            devices=devices,
            num_nodes=num_nodes,
            strategy=_strategy(strategy, devices * num_nodes),
            # other launchers' variables may be about something else: several machines are torchrun's
            plugins=[AtomicCheckpointIO(), TorchElasticEnvironment() if from_torchrun() else LightningEnvironment()],
            enable_checkpointing=any(isinstance(c, Checkpoint) for c in callbacks),
            enable_progress_bar=any(isinstance(c, ProgressBar) for c in callbacks),
            enable_model_summary=False,
            use_distributed_sampler=False,
            # a table that a model makes and keeps during validation must be usable in training
            inference_mode=False,
        )
    except (MisconfigurationException, ValueError, ImportError) as error:
        raise ConfigError(
            f"trainer.accelerator ({accelerator!r}), trainer.strategy ({strategy!r}) and trainer.devices ({devices}) "
            f"cannot be had here: {error}"
        ) from error


def _strategy(name: str, n_processes: int) -> Strategy | str:
    if n_processes == 1:
        return "auto"
    if name == "fsdp":
        return ModelParallelStrategy(
            data_parallel_size=n_processes, tensor_parallel_size=1, save_distributed_checkpoint=False
        )
    # no buffer changes in training; newer versions of torch have another word for that
    words = inspect.signature(DistributedDataParallel).parameters
    quiet = "forward_sync_buffers" if "forward_sync_buffers" in words else "broadcast_buffers"
    return DDPStrategy(gradient_as_bucket_view=True, **{quiet: False})
