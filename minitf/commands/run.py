"""One training run: prepared, trained, written down; its folder tells at any time how it stands."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from minitf.command_line import Job
from minitf.commands import summary
from minitf.commands.rehearse import fit_to_task
from minitf.commands.start import Start, check_same_data, difference_of_machine
from minitf.config import build, build_data, set_data_facts
from minitf.hints import show_path

if TYPE_CHECKING:
    import lightning as L
    from torch import nn

    from minitf.data.base import BaseData
    from minitf.training.saving import RunCheckpoint
    from minitf.training.task import Task


class Run:
    """One run, or what is left of it; its folder tells at any time how it stands.

    Args:
        start: what is to be trained, and from where.
        job: where the run folder is, and who says that the run is to stop.

    Attributes:
        begun: the folder says that the run is under way.
        training: the first step of this part may have been made.
        finished: all is done and written down.
    """

    def __init__(self, start: Start, job: Job) -> None:
        from minitf.training.status import Status

        self.start, self.job, self.stop = start, job, job.stop
        self.status = Status(job.folder)
        self.begun = self.finished = False
        self.trainer: L.Trainer | None = None
        self.saver: RunCheckpoint | None = None

    @property
    def step(self) -> int:
        """Optimizer steps that are done."""
        return max(self.start.step, self.trainer.global_step if self.trainer else 0)

    @property
    def saved_step(self) -> int:
        """Step of the newest checkpoint; 0 where there is none."""
        return max(self.start.step, self.saver.saved_step if self.saver else 0)

    @property
    def training(self) -> bool:
        """Whether everything that was stored has been taken over."""
        return self.saver is not None and self.saver.has_started

    def left(self) -> str:
        """What is left of the run, in words."""
        saved = self.saved_step
        return f"the checkpoint of step {saved} is whole" if saved > 0 else "there is no checkpoint yet"

    def lost_a_process(self, error: Exception) -> bool:
        """Whether an error comes from another process of the run that is no longer there."""
        several = self.trainer is not None and self.trainer.world_size > 1
        return several and isinstance(error, RuntimeError) and any(w in str(error) for w in ("gloo", "NCCL", "onnect"))

    def train(self) -> float:
        """Prepare, train, and write down and print how it went.

        Returns:
            The validation loss.

        Raises:
            Interrupted: a signal came; the caller marks the run.
            Exception: whatever went wrong; the run is marked as failed.
        """
        from minitf.training import processes

        if self.start.record is None:  # a run that goes on is only touched when it is known that it can
            self._begin()
        try:
            text, loss = self._work()
        except BaseException as error:
            if isinstance(error, Exception) and self.begun:
                self.mark_failed(error)
            if self.trainer is not None:
                processes.end_children(self.trainer, patience=5.0 if isinstance(error, Exception) else 0.5)
            raise
        self.status.finished(self.step)
        self.finished = True
        print(text)
        return loss

    def _begin(self) -> None:
        with self.stop.deferred():  # a signal between the two would leave a run that says it is running
            self.status.running(self.step)
            self.begun = True

    def _work(self) -> tuple[str, float]:
        from minitf.analysis.sites import sites
        from minitf.files import write_json
        from minitf.training.precision import emulated

        config, data, task = self.assemble()
        self._begin()
        self._write_down(config, data)
        # read before training: the user's own files may change meanwhile
        data.baselines()
        prompt = summary.opening(data)
        n_params = sum(p.numel() for p in task.model.parameters())
        origin = f", from step {self.step:,} on" if self.step else ""
        with self.stop.deferred():  # from this line on a signal waits for the end of a step
            print(
                f"training {n_params:,} parameters for {self.trainer.max_steps:,} steps{origin} "
                f"in {show_path(self.job.folder)}",
                flush=True,
            )
            if note := emulated(self.trainer.precision, self.trainer.strategy.root_device.type):
                print(f"note: {note}", flush=True)
            self.fit(task, data)
        metrics = summary.collect(config, data, task, self.step, self.saver)
        write_json(self.job.folder / "metrics.json", metrics)
        sample = summary.sample_text(self._whole_model(task), data, config["seed"])
        text = summary.describe(metrics, sample, prompt, self.job.folder, has_heads=bool(sites(task.model)))
        return text, metrics["final"]["val/loss"]

    def assemble(self) -> tuple[dict[str, Any], BaseData, Task]:
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
        set_data_facts(cfg, **data.facts)
        model, objective = build(cfg.model), build(cfg.task)
        fit_to_task(data, objective)
        if self.start.checkpoint:
            # here, for its message: Lightning loads it again, with everything else
            load_weights(model, model_weights(read_checkpoint(self.start.checkpoint)))
        config = OmegaConf.to_container(cfg, resolve=True)
        task = Task(
            model,
            objective,
            build(cfg.optim),
            build(cfg.schedule),
            seed=cfg.seed,
            log_every=cfg.trainer.log_every,
            val_bytes=data.val_bytes if objective.takes == "text" else None,
        )
        loggers = build(cfg.logger)(run_dir=folder, config=config)
        callbacks = build(cfg.callbacks)(run_dir=folder, config=config, stop=self.stop)
        self.trainer = build(cfg.trainer)(run_dir=folder, loggers=loggers, callbacks=callbacks)
        self.saver = next(c for c in self.trainer.callbacks if isinstance(c, RunCheckpoint))
        data.plan(cfg.trainer.max_steps, cfg.trainer.accumulate, self.trainer.global_rank, self.trainer.world_size)
        return config, data, task

    def _write_down(self, config: dict[str, Any], data: BaseData) -> None:
        """What a run is: its tokenizer, its record, and last its config, which says that it has been begun."""
        from minitf.files import atomic_file, write_json
        from minitf.training.metrics import MetricsCsv

        for logger in self.trainer.loggers:
            if isinstance(logger, MetricsCsv):
                logger.cut(self.step)
        folder, earlier = self.job.folder, self.start.record
        now = summary.record(data, self.trainer, self.job)
        if earlier is None:
            data.save(folder)
            record = now
        else:
            for line in difference_of_machine(earlier, now):
                print(f"{line}: the last digits can differ from those of an unbroken run")
            part = {"step": self.step, **{key: now[key] for key in now if key not in ("data", "choices")}}
            parts = [*earlier.get("resumed", []), part]
            # the logger may be another one from now on, and the next part starts with this one
            record = {**earlier, "choices": {**earlier["choices"], **_logger(now)}, "resumed": parts}
        write_json(folder / "record.json", record)
        with atomic_file(folder / "config.yaml") as file:
            file.write(OmegaConf.to_yaml(OmegaConf.create(config)).encode("utf-8"))

    def fit(self, task: Task, data: BaseData) -> None:
        """Train from where the run stands; a signal waits for the end of the step."""
        with self.stop.deferred():
            if self.trainer.world_size > 1:
                self.stop.block()  # processes that Lightning starts could not handle one in their first second
            try:
                self.trainer.fit(task, datamodule=data, ckpt_path=self.start.checkpoint, weights_only=True)
            finally:
                self.stop.take_over()
        self.saver.has_started = True  # also where nothing was left to do

    def _whole_model(self, task: Task) -> nn.Module:
        """The trained model; one spread over processes, which none of them can run alone, is read from the disk."""
        from minitf.training.checkpoint import find_checkpoint, load_weights, model_weights, read_checkpoint

        if not hasattr(task.model, "unshard"):
            return task.model
        model = build(self.start.cfg.model)
        load_weights(model, model_weights(read_checkpoint(find_checkpoint(self.job.folder, "last"))))
        return model

    def mark_failed(self, error: Exception) -> None:
        """Write down why the run has ended, unless there is no room even for that."""
        if isinstance(error, BrokenPipeError):  # whoever read our output has seen enough
            self.status.interrupted("SIGPIPE", self.step)
            return
        with suppress(OSError):
            self.status.failed(str(error) or type(error).__name__, self.step)


def _logger(record: dict[str, Any]) -> dict[str, Any]:
    return {name: option for name, option in record["choices"].items() if name == "logger"}
