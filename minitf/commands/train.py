"""`minitf-train`: prepare the data, build the model, train it, say how it went."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from omegaconf import DictConfig

from minitf.command_line import Job, entry, friendly_errors, take_raw
from minitf.commands import summary
from minitf.commands.rehearse import rehearse
from minitf.commands.run import Run
from minitf.commands.start import Start, is_finished, look, resume_arguments, resume_command
from minitf.errors import ConfigError, DataError
from minitf.memory import ran_out
from minitf.typed import check_typed

if TYPE_CHECKING:
    from minitf.training.stop import Interrupted


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


def follow(cfg: DictConfig, job: Job, resume: bool) -> None:
    """The whole run in a process that is not the first of its run: it trains, and writes and says nothing."""
    from minitf.training.launched import rank
    from minitf.training.processes import be_quiet
    from minitf.training.stop import Interrupted, StopSignals

    be_quiet()
    # what ends training here ends it in process 0 too, which says so; Lightning kills it if this exit code is not 0
    with suppress(Interrupted), StopSignals() as stop:
        try:
            start = look(cfg, job, resume) if resume else Start(cfg)
            if is_finished(start, job.folder):
                return
            run = Run(start, job, stop)
            _, data, task = run.assemble()
        except (ConfigError, DataError) as error:
            raise type(error)(f"process {rank()}: {error}") from error
        with suppress(DataError):
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
