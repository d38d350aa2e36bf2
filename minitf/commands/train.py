"""`minitf-train`: prepare the data, build the model, train it, say how it went."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from omegaconf import DictConfig, OmegaConf

from minitf.command_line import Job, entry, friendly_errors, take_raw
from minitf.commands import summary
from minitf.commands.start import (
    Start,
    check_same_data,
    difference_of_machine,
    is_finished,
    look,
    resume_arguments,
    resume_command,
)
from minitf.config import build, build_data, set_data_facts
from minitf.errors import ConfigError, DataError
from minitf.memory import ran_out
from minitf.typed import check_typed

if TYPE_CHECKING:
    import lightning as L
    from torch import nn

    from minitf.data.module import DataModule
    from minitf.training.saving import RunCheckpoint
    from minitf.training.stop import Interrupted, StopSignals
    from minitf.training.task import Task


def main() -> None:
    """Read the command line and train."""
    # threads that wait actively ruin each other on a shared machine; must be said before torch is imported
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    typed = list(sys.argv)
    raw = take_raw(("resume",))
    with friendly_errors("train"):
        check_typed(sys.argv[1:])
        if "resume" in raw:
            resume_arguments(raw["resume"])

    def work(cfg: DictConfig, job: Job) -> None:
        sys.argv[:] = typed  # Lightning starts other processes of the run with the same arguments
        train(cfg, job, resume="resume" in raw)

    entry("train", work)


def train(cfg: DictConfig, job: Job, resume: bool = False) -> None:
    """One run, from its config to its metrics.

    Args:
        cfg: as in configs/train.yaml.
        job: where the run folder is.
        resume: go on with the run in that folder.

    Raises:
        ConfigError: a choice that cannot work, before the data is read; no run is begun.
        DataError: data that cannot be used, a run that has diverged, or a disk that is full; the run is marked as
            failed.
        SystemExit: a signal came; the run is saved and marked as interrupted.
    """
    from minitf.training import processes
    from minitf.training.callbacks import quiet_lightning
    from minitf.training.folder import HeldFolder
    from minitf.training.launched import rank
    from minitf.training.stop import Interrupted, StopSignals

    quiet_lightning()
    job = replace(job, folder=processes.agree_on_folder(job.folder))
    if rank() > 0:
        return follow(cfg, job, resume)
    run = None
    with StopSignals() as stop, HeldFolder(job.folder):
        try:
            start = look(cfg, job, resume)
            if is_finished(start, job.folder):
                print(_already_finished(start, job))
                return
            rehearse(start.cfg, job, stop)
            run = Run(start, job, stop)
            run.train()
        except Interrupted as wish:
            end_interrupted(run, wish, job)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _explained(error, run, job) from error
        except (RuntimeError, MemoryError) as error:
            if not ran_out(error):
                raise
            raise ConfigError(
                "the memory of this machine is too small for one step: choose a smaller data.batch_size, "
                "let trainer.accumulate divide the batch, or take a smaller model"
            ) from error


class Run:
    """One run, or what is left of it; its folder tells at any time how it stands.

    Args:
        start: what is to be trained, and from where.
        job: where the run folder is.
        stop: says when somebody wants the run to stop.
    """

    def __init__(self, start: Start, job: Job, stop: StopSignals) -> None:
        from minitf.training.status import Status

        self.start, self.job, self.stop = start, job, stop
        self.status = Status(job.folder)
        self.trainer: L.Trainer | None = None
        self.saver: RunCheckpoint | None = None

    @property
    def step(self) -> int:
        """Optimizer steps that are done."""
        return max(self.start.step, self.trainer.global_step if self.trainer else 0)

    def train(self) -> None:
        """Prepare, train, and write down and print how it went.

        Raises:
            Interrupted: a signal came; the caller marks the run.
            Exception: whatever went wrong; the run is marked as failed.
        """
        from minitf.training import processes

        self.status.running(self.step)
        try:
            text = self._work()
        except BaseException as error:
            if isinstance(error, Exception):
                self._mark_failed(error)
            if self.trainer is not None:
                processes.end_children(self.trainer)
            raise
        self.status.finished(self.step)
        print(text)

    def _work(self) -> str:
        from minitf.files import write_json

        config, data, task = self.assemble()
        self._write_down(config, data)
        # read before training: the user's own files may change meanwhile
        data.baseline()
        prompt = summary.opening(data)
        n_params = sum(p.numel() for p in task.model.parameters())
        origin = f", from step {self.step:,} on" if self.step else ""
        print(
            f"training {n_params:,} parameters for {self.trainer.max_steps:,} steps{origin} "
            f"in {summary.show_path(self.job.folder)}",
            flush=True,
        )
        self.fit(task, data)
        metrics = summary.collect(config, data, task, self.step, self.saver)
        write_json(self.job.folder / "metrics.json", metrics)
        sample = summary.sample_text(self._whole_model(task), data, config["seed"])
        return summary.describe(metrics, sample, prompt, self.job.folder)

    def assemble(self) -> tuple[dict[str, Any], DataModule, Task]:
        """Resolved config, data, model with its task; the trainer, too, is made."""
        from lightning.fabric.utilities.seed import seed_everything

        from minitf.training.checkpoint import load_weights, model_weights, read_checkpoint
        from minitf.training.processes import first_here
        from minitf.training.saving import RunCheckpoint
        from minitf.training.task import Task

        cfg, folder = self.start.cfg, self.job.folder
        seed_everything(cfg.seed, verbose=False)
        with first_here():
            data = build_data(cfg).prepare()
        check_same_data(self.start, data, folder)
        set_data_facts(cfg, vocab_size=data.vocab_size)
        model = build(cfg.model)
        if self.start.checkpoint:
            # here, for its message: Lightning loads it again, with everything else
            load_weights(model, model_weights(read_checkpoint(self.start.checkpoint)))
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
        loggers = build(cfg.logger)(run_dir=folder, config=config)
        callbacks = build(cfg.callbacks)(run_dir=folder, config=config, stop=self.stop)
        self.trainer = build(cfg.trainer)(run_dir=folder, loggers=loggers, callbacks=callbacks)
        self.saver = next(c for c in self.trainer.callbacks if isinstance(c, RunCheckpoint))
        data.plan(cfg.trainer.max_steps, cfg.trainer.accumulate, self.trainer.global_rank, self.trainer.world_size)
        return config, data, task

    def _write_down(self, config: dict[str, Any], data: DataModule) -> None:
        """What a run is: its tokenizer, its record, and last its config, which says that it has been begun."""
        from minitf.files import atomic_file, write_json
        from minitf.training.metrics import MetricsCsv

        for logger in self.trainer.loggers:
            if isinstance(logger, MetricsCsv):
                logger.cut(self.step)
        folder, earlier = self.job.folder, self.start.record
        now = summary.record(data, self.trainer, self.job)
        if earlier is None:
            data.tokenizer.save(folder)
            record = now
        else:
            for line in difference_of_machine(earlier, now):
                print(f"{line}: the last digits can differ from those of an unbroken run")
            part = {"step": self.step, **{key: now[key] for key in now if key not in ("data", "choices")}}
            record = {**earlier, "resumed": [*earlier.get("resumed", []), part]}
        write_json(folder / "record.json", record)
        with atomic_file(folder / "config.yaml") as file:
            file.write(OmegaConf.to_yaml(OmegaConf.create(config)).encode("utf-8"))

    def fit(self, task: Task, data: DataModule) -> None:
        """Train from where the run stands; a signal waits for the end of the step."""
        with self.stop.deferred():
            self.trainer.fit(task, datamodule=data, ckpt_path=self.start.checkpoint, weights_only=True)

    def _whole_model(self, task: Task) -> nn.Module:
        """The trained model; one spread over processes, which none of them can run alone, is read from the disk."""
        from minitf.training.checkpoint import find_checkpoint, load_weights, model_weights, read_checkpoint

        if not hasattr(task.model, "unshard"):
            return task.model
        model = build(self.start.cfg.model)
        load_weights(model, model_weights(read_checkpoint(find_checkpoint(self.job.folder, "last"))))
        return model

    def _mark_failed(self, error: Exception) -> None:
        if isinstance(error, BrokenPipeError):  # whoever read our output has seen enough
            self.status.interrupted("SIGPIPE", self.step)
            return
        # there may be no room even for that: what is to be told is the first error
        with suppress(OSError):
            self.status.failed(str(error) or type(error).__name__, self.step)


def follow(cfg: DictConfig, job: Job, resume: bool) -> None:
    """The whole run in a process that is not the first of its run: it trains, and writes and says nothing."""
    from minitf.training.launched import rank
    from minitf.training.processes import be_quiet
    from minitf.training.stop import Interrupted, StopSignals

    be_quiet()
    with StopSignals() as stop:
        try:
            start = look(cfg, job, resume) if resume else Start(cfg)
            if is_finished(start, job.folder):
                return
            run = Run(start, job, stop)
            _, data, task = run.assemble()
        except (ConfigError, DataError) as error:
            raise type(error)(f"process {rank()}: {error}") from error
        # what ends training here ends it in process 0 too, which says so; Lightning kills it if this exit code is not 0
        with suppress(DataError, Interrupted):
            run.fit(task, data)


def end_interrupted(run: Run | None, wish: Interrupted, job: Job) -> NoReturn:
    """Mark the run as interrupted, say in one line how it goes on, and end the process with the signal's code."""
    line = f"interrupted by {wish.name}"
    if run is not None:
        run.status.interrupted(wish.name, run.step)
        saved = max(run.start.step, run.saver.saved_step if run.saver else -1)
        kept = "saved" if saved == run.step else f"the newest checkpoint is that of step {saved}"
        line += f" after step {run.step} ({kept})" if run.step else " before the first step"
    if job.sweep:
        line += f"; the sweep goes on with: {summary.sweep_command(job)}"
    elif run is not None and run.trainer is not None:
        line += f"; go on with: {resume_command(job.folder)}"
    print(f"\n{line}", flush=True)
    raise SystemExit(wish.code)


def rehearse(cfg: DictConfig, job: Job, stop: StopSignals) -> None:
    """Build every part once with a small vocabulary, so that a wrong choice is found before the data is read."""
    from minitf.training import processes

    trial = cfg.copy()
    set_data_facts(trial, vocab_size=2)
    build(trial.logger)
    model = build(trial.model)
    check_together(model, build(trial.task), trial.data.seq_len)
    optimizer = build(trial.optim)(model)
    build(trial.schedule)(optimizer, n_steps=trial.trainer.max_steps)
    callbacks = build(trial.callbacks)(run_dir=job.folder, config={}, stop=stop)
    trainer = build(trial.trainer)(run_dir=job.folder, loggers=[], callbacks=callbacks)
    build_data(trial).plan(trial.trainer.max_steps, trial.trainer.accumulate, 0, trainer.world_size)
    processes.check_several(trainer, optimizer, bool(job.sweep))


def check_together(model: nn.Module, objective: Any, seq_len: int) -> None:
    """Facts between parts that neither of them can see alone."""
    limit = getattr(model, "position_limit", None)
    if limit is not None and limit < seq_len:
        raise ConfigError(
            f"the position table has {limit} places (model.max_len), but a row of the data has "
            f"data.seq_len={seq_len}: leave model.max_len out, or choose model/position=rope, sinusoidal or none"
        )
    if objective.needs_causal and model.sees_future:
        raise ConfigError(
            "the task predicts the next token, but the model's mask shows it: "
            "use model/mask=causal or model/mask=sliding_window"
        )


def _already_finished(start: Start, job: Job) -> str:
    folder, n_steps = summary.show_path(job.folder), start.cfg.trainer.max_steps
    return f"{folder} has finished its {n_steps:,} steps; a larger trainer.max_steps would go on with it"


def _explained(error: OSError, run: Run | None, job: Job) -> Exception:
    """The error of a full disk, a missing permission and the like, with what is left of the run."""
    from minitf.training.folder import holds_run

    if run is None:
        return error
    saved = max(run.start.step, run.saver.saved_step if run.saver else -1)
    kept = f"the checkpoint of step {saved} is whole" if saved > 0 else "there is no checkpoint yet"
    again = f"go on with: {resume_command(job.folder)}" if holds_run(job.folder) else "start again"
    return DataError(
        f"{error.strerror or error}: {error.filename or job.folder}. The run stopped after step {run.step}; {kept}. "
        f"When the cause is gone, {again}"
    )
