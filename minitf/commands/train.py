"""`minitf-train`: prepare the data, build the model, train it, say how it went."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from omegaconf import DictConfig, OmegaConf

from minitf.command_line import Job, entry
from minitf.commands import summary
from minitf.config import build, build_data, set_data_facts
from minitf.errors import ConfigError, DataError

if TYPE_CHECKING:
    import lightning as L
    from torch import nn

    from minitf.data.module import DataModule
    from minitf.training.status import Status
    from minitf.training.task import Task


def main() -> None:
    """Read the command line and train."""
    # threads that wait actively ruin each other on a shared machine; must be said before torch is imported
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    entry("train", train)


def train(cfg: DictConfig, job: Job) -> None:
    """One run, from its config to its metrics.

    Args:
        cfg: as in configs/train.yaml.
        job: where the run folder is.

    Raises:
        ConfigError: a choice that cannot work, before the data is read; no run is begun.
        DataError: data that cannot be used, or a run that has diverged; the run is marked as failed.
    """
    from lightning.fabric.utilities.seed import seed_everything

    from minitf.files import write_json
    from minitf.training import processes
    from minitf.training.callbacks import quiet_lightning
    from minitf.training.status import Status

    quiet_lightning()
    job = replace(job, folder=processes.agree_on_folder(job.folder))
    if processes.rank() > 0:
        return follow(cfg, job)
    claim(job.folder)
    try:
        rehearse(cfg, job)
    except BaseException:
        (job.folder / "checkpoints").rmdir()
        raise
    seed_everything(cfg.seed, verbose=False)
    status = Status(job.folder)
    status.running()
    trainer = None
    try:
        config, data, task, trainer = assemble(cfg, job)
        OmegaConf.save(OmegaConf.create(config), job.folder / "config.yaml")
        write_json(job.folder / "record.json", summary.record(data, trainer, job))
        data.tokenizer.save(job.folder)
        # read before training: the user's own files may change meanwhile
        data.baseline()
        prompt = summary.opening(data)
        seconds = fit(trainer, task, data, status)
        metrics = summary.collect(config, data, task, trainer, seconds)
        write_json(job.folder / "metrics.json", metrics)
        text = summary.describe(
            metrics, summary.sample_text(whole_model(cfg, task, job.folder), data, cfg.seed), prompt, job.folder
        )
        status.finished(trainer.global_step)
    except KeyboardInterrupt:
        stop(status, "SIGINT", trainer.global_step if trainer else 0, 130)
    except Exception as error:
        status.failed(str(error) or type(error).__name__, trainer.global_step if trainer else 0)
        if trainer:
            processes.end_children(trainer)
        raise
    print(text)


def follow(cfg: DictConfig, job: Job) -> None:
    """The whole run in a process that is not the first of its run: it trains, and writes and says nothing."""
    from lightning.fabric.utilities.seed import seed_everything
    from lightning.pytorch.utilities.exceptions import SIGTERMException

    from minitf.training import processes

    processes.be_quiet()
    seed_everything(cfg.seed, verbose=False)
    try:
        _, data, task, trainer = assemble(cfg, job)
    except (ConfigError, DataError) as error:
        raise type(error)(f"process {processes.rank()}: {error}") from error
    # what ends training here ends it in process 0 too, which says so; another exit code would make Lightning kill it
    with suppress(DataError, SIGTERMException, SystemExit):
        trainer.fit(task, datamodule=data)


def claim(folder: Path) -> None:
    """Take a folder for this run alone: making `checkpoints` succeeds for one process only."""
    try:
        (folder / "checkpoints").mkdir()
    except FileExistsError:
        raise ConfigError(f"{folder} already holds a run: leave hydra.run.dir out, or name an empty folder") from None


def rehearse(cfg: DictConfig, job: Job) -> None:
    """Build every part once with a small vocabulary, so that a wrong choice is found before the data is read."""
    from minitf.training import processes

    trial = cfg.copy()
    set_data_facts(trial, vocab_size=2)
    model = build(trial.model)
    check_together(model, build(trial.task))
    optimizer = build(trial.optim)(model)
    build(trial.schedule)(optimizer, n_steps=trial.trainer.max_steps)
    trainer = build(trial.trainer)(run_dir=job.folder, loggers=[], callbacks=[])
    build_data(trial).plan(trial.trainer.max_steps, trial.trainer.accumulate, 0, trainer.world_size)
    processes.check_several(trainer, optimizer, job.sweep)


def assemble(cfg: DictConfig, job: Job) -> tuple[dict[str, Any], DataModule, Task, L.Trainer]:
    """Resolved config, data, model with its task, trainer."""
    from minitf.training.processes import first_here
    from minitf.training.task import Task

    with first_here():
        data = build_data(cfg).prepare()
    set_data_facts(cfg, vocab_size=data.vocab_size)
    model = build(cfg.model)
    config = OmegaConf.to_container(cfg, resolve=True)
    task = Task(
        model,
        build(cfg.task),
        build(cfg.optim),
        build(cfg.schedule),
        seed=cfg.seed,
        log_every=cfg.trainer.log_every,
        val_bytes=data.val_bytes,
    )
    loggers = build(cfg.logger)(run_dir=job.folder, config=config)
    callbacks = build(cfg.callbacks)(run_dir=job.folder, config=config)
    trainer = build(cfg.trainer)(run_dir=job.folder, loggers=loggers, callbacks=callbacks)
    data.plan(cfg.trainer.max_steps, cfg.trainer.accumulate, trainer.global_rank, trainer.world_size)
    return config, data, task, trainer


def whole_model(cfg: DictConfig, task: Task, folder: Path) -> nn.Module:
    """The trained model; one spread over processes, which none of them can run alone, is read from its checkpoint."""
    from minitf.training.checkpoint import find_checkpoint, load_weights, model_weights, read_checkpoint

    if not hasattr(task.model, "unshard"):
        return task.model
    model = build(cfg.model)
    load_weights(model, model_weights(read_checkpoint(find_checkpoint(folder, "last"))))
    return model


def check_together(model: nn.Module, objective: Any) -> None:
    """Facts between parts that neither of them can see alone."""
    if objective.needs_causal and model.sees_future:
        raise ConfigError(
            "the task predicts the next token, but the model's mask shows it: "
            "use model/mask=causal or model/mask=sliding_window"
        )


def fit(trainer: L.Trainer, task: Task, data: DataModule, status: Status) -> float:
    """Train and return the seconds it took; an interruption ends the process with the code that a shell expects."""
    from lightning.pytorch.utilities.exceptions import SIGTERMException

    n_params = sum(p.numel() for p in task.model.parameters())
    folder = summary.show_path(Path(trainer.default_root_dir))
    print(f"training {n_params:,} parameters for {trainer.max_steps:,} steps in {folder}", flush=True)
    start = time.perf_counter()
    try:
        trainer.fit(task, datamodule=data)
    except SIGTERMException:
        stop(status, "SIGTERM", trainer.global_step, 143)
    except SystemExit:
        stop(status, "SIGINT", trainer.global_step, 130)  # this is how Lightning ends after Ctrl-C
    return time.perf_counter() - start


def stop(status: Status, signal: str, step: int, code: int) -> NoReturn:
    """Mark the run as interrupted and end with `code`."""
    status.interrupted(signal, step)
    print(f"\ninterrupted by {signal} after step {step}", flush=True)
    raise SystemExit(code)
