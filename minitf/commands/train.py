"""`minitf-train`: prepare the data, build the model, train it, say how it went."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from omegaconf import DictConfig, OmegaConf

from minitf.command_line import Job, entry
from minitf.commands import summary
from minitf.config import build, build_data, set_data_facts
from minitf.errors import ConfigError

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
    from minitf.training.callbacks import quiet_lightning
    from minitf.training.status import Status

    quiet_lightning()
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
        # read before training: the user's own files may change meanwhile
        data.baseline()
        prompt = summary.opening(data)
        seconds = fit(trainer, task, data, status)
        metrics = summary.collect(config, data, task, trainer, seconds)
        write_json(job.folder / "metrics.json", metrics)
        text = summary.describe(metrics, summary.sample_text(task, data, cfg.seed), prompt, job.folder)
        status.finished(trainer.global_step)
    except KeyboardInterrupt:
        stop(status, "SIGINT", trainer.global_step if trainer else 0, 130)
    except Exception as error:
        status.failed(str(error) or type(error).__name__, trainer.global_step if trainer else 0)
        raise
    print(text)


def claim(folder: Path) -> None:
    """Take a folder for this run alone: making `checkpoints` succeeds for one process only."""
    try:
        (folder / "checkpoints").mkdir()
    except FileExistsError:
        raise ConfigError(f"{folder} already holds a run: leave hydra.run.dir out, or name an empty folder") from None


def rehearse(cfg: DictConfig, job: Job) -> None:
    """Build every part once with a small vocabulary, so that a wrong choice is found before the data is read."""
    trial = cfg.copy()
    set_data_facts(trial, vocab_size=2)
    model = build(trial.model)
    check_together(model, build(trial.task))
    build(trial.schedule)(build(trial.optim)(model), n_steps=trial.trainer.max_steps)
    build(trial.trainer)(run_dir=job.folder, loggers=[], callbacks=[])
    build_data(trial).plan(trial.trainer.max_steps, trial.trainer.accumulate)


def assemble(cfg: DictConfig, job: Job) -> tuple[dict[str, Any], DataModule, Task, L.Trainer]:
    """Resolved config, data, model with its task, trainer; the run folder gets config.yaml and the tokenizer."""
    from minitf.files import write_json
    from minitf.training.task import Task

    data = build_data(cfg).prepare()
    data.plan(cfg.trainer.max_steps, cfg.trainer.accumulate)
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
    OmegaConf.save(OmegaConf.create(config), job.folder / "config.yaml")
    write_json(job.folder / "record.json", summary.record(data, trainer, job))
    data.tokenizer.save(job.folder)
    return config, data, task, trainer


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
