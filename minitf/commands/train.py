"""`minitf-train`: prepare the data, build the model, train it, say how it went."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from omegaconf import DictConfig

from minitf.command_line import MISTAKES, Job, entry, friendly_errors, take_raw
from minitf.commands.rehearse import rehearse
from minitf.commands.run import Run
from minitf.commands.start import Start, is_finished, look, resume_arguments, resume_command
from minitf.errors import ConfigError, DataError
from minitf.files import user_path
from minitf.hints import show_path, sweep_command
from minitf.memory import ran_out
from minitf.suited import suited
from minitf.training.stop import Interrupted
from minitf.typed import check_typed


def main() -> None:
    """Read the command line and train."""
    # threads that wait actively ruin each other on a shared machine; must be said before torch is imported
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    typed = list(sys.argv)
    raw = take_raw(("resume",))
    added: list[str] = []  # by minitf: where a run that goes on lies
    more: list[str] = []  # by minitf: what goes with the choices
    with friendly_errors("train"):
        check_typed(sys.argv[1:])
        if "resume" in raw:
            added = resume_arguments(raw["resume"])
        else:
            more = suited(sys.argv[1:])
            sys.argv += more

    def work(cfg: DictConfig, job: Job) -> float | None:
        sys.argv[:] = typed  # Lightning starts other processes of the run with the same arguments
        if more:
            print(f"with it goes {' '.join(more)}; configs/suited.yaml says so")
        if "resume" in raw:
            own = [override for override in job.overrides if override not in added]
            job = replace(job, folder=user_path(raw["resume"]).absolute(), overrides=own)
        return train(cfg, job, resume="resume" in raw)

    entry("train", work)


def train(cfg: DictConfig, job: Job, resume: bool = False) -> float | None:
    """One run, from its config to its metrics.

    Args:
        cfg: as in configs/train.yaml.
        job: where the run folder is.
        resume: go on with the run in that folder.

    Returns:
        The validation loss, which a sweeper may make small; None in a process that is not the first of its run.

    Raises:
        ConfigError: a choice that cannot work, before the data is read; no run is begun.
        DataError: data that cannot be used, a run that has diverged, or a disk that is full; the run is marked as
            failed.
        Interrupted: a signal came; the run is saved and marked as interrupted.
    """
    with job.stop:
        with job.stop.deferred():  # an import that is cut short would look like a fault
            from minitf.training import processes
            from minitf.training.callbacks import quiet_lightning
            from minitf.training.folder import HeldFolder
            from minitf.training.launched import rank

        quiet_lightning()
        job = replace(job, folder=processes.agree_on_folder(job.folder))
        if rank() > 0:
            follow(cfg, job, resume)
            return None
        run = None
        try:
            with HeldFolder(job.folder):
                start = look(cfg, job, resume)
                if is_finished(start, job.folder):
                    print(_already_finished(start, job))
                    return read_loss(job.folder)
                run = Run(start, job)
                rehearse(start.cfg, job)
                return run.train()
        except Interrupted as wish:
            job.stop.ignore()
            tell_interrupted(run, wish, job)
            raise
        except Exception as error:
            told = _explained(error, run, job)
            if told is error:
                raise
            if run is not None and run.begun:
                run.mark_failed(told)
            raise told from error


def read_loss(folder: Path) -> float | None:
    """The validation loss of a finished run; None where it has been taken away.

    Args:
        folder: of the run.
    """
    try:
        return json.loads((folder / "metrics.json").read_text(encoding="utf-8"))["final"]["val/loss"]
    except (OSError, ValueError, KeyError):
        return None


def follow(cfg: DictConfig, job: Job, resume: bool) -> None:
    """The whole run in a process that is not the first of its run: it trains, and writes and says nothing.

    A signal waits until all processes are there and stop together.
    """
    from minitf.training.launched import rank
    from minitf.training.processes import be_quiet

    be_quiet()
    job.stop.hold()
    try:
        start = look(cfg, job, resume) if resume else Start(cfg)
        if is_finished(start, job.folder):
            return
        run = Run(start, job)
        _, data, task = run.assemble()
    except (ConfigError, DataError) as error:
        raise type(error)(f"process {rank()}: {error}") from error
    # what ends training here ends it in process 0 too, which says so; Lightning kills it if this exit code is not 0
    with suppress(DataError, Interrupted):
        try:
            run.fit(task, data)
        except RuntimeError as error:
            if not run.lost_a_process(error):
                raise
    job.stop.requested = None


def tell_interrupted(run: Run | None, wish: Interrupted, job: Job) -> None:
    """Mark the run as interrupted, and say in one line how it goes on."""
    from minitf.training.folder import holds_run

    line = f"interrupted by {wish.name}"
    if run is not None and run.finished:
        line += " after the run was finished"
    elif run is not None and run.begun:
        run.status.interrupted(wish.name, run.step)
        kept = "saved" if run.saved_step == run.step else f"the newest checkpoint is that of step {run.saved_step}"
        kept = kept if run.saved_step > 0 else "nothing was saved"
        line += f" after step {run.step} ({kept})" if run.step else " before the first step"
    if job.sweep:
        line += f"; the sweep goes on with: {sweep_command(job.sweep)}"
    elif run is not None and not run.finished and holds_run(job.folder):
        line += f"; go on with: {resume_command(job.folder)}"
    print(f"\n{line}", flush=True)
    wish.told = True


def _already_finished(start: Start, job: Job) -> str:
    folder, n_steps = show_path(job.folder), start.cfg.trainer.max_steps
    return f"{folder} has finished its {n_steps:,} steps; a larger trainer.max_steps would go on with it"


def _explained(error: Exception, run: Run | None, job: Job) -> Exception:
    """What a user can do something about, behind an error of the system or a library; else the error itself."""
    from minitf.training.folder import holds_run

    if isinstance(error, OSError) and not isinstance(error, BrokenPipeError) and run is not None:
        return DataError(
            f"{error.strerror or error}: {error.filename or job.folder}. The run stopped after step {run.step}; "
            f"{run.left()}. When the cause is gone, {_way_on(job)}"
        )
    if isinstance(error, MISTAKES):
        return error
    if ran_out(error):
        return ConfigError(
            "the memory of this machine is too small for one step: choose a smaller data.batch_size, "
            "let trainer.accumulate divide the batch, or take a smaller model"
        )
    if run is not None and run.lost_a_process(error):
        return DataError(
            f"another process of this run has ended after step {run.step}, and so the others cannot go on; "
            f"{run.left()}; {_way_on(job)}"
        )
    going_on = run.start.checkpoint is not None if run else holds_run(job.folder)
    if going_on and not (run and run.training):
        first = str(error).split("\n")[0]
        return ConfigError(
            f"the files in {job.folder} do not fit together; were they changed, or damaged? "
            f"({type(error).__name__}: {first:.200}) MINITF_TRACE=1 shows where it was noticed"
        )
    return error


def _way_on(job: Job) -> str:
    from minitf.training.folder import holds_run

    return f"go on with: {resume_command(job.folder)}" if holds_run(job.folder) else "start again"
