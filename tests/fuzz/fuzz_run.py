"""One random command line, as a user would start it, stop it and go on with it, but in this process."""

import io
import os
import random
import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import torch
from config_generator import Case
from hydra.core.global_hydra import GlobalHydra
from lightning.pytorch.strategies.launchers.subprocess_script import _SubprocessScriptLauncher

from minitf.commands import summary
from minitf.commands.rehearse import fit_to_task
from minitf.commands.train import main
from minitf.config import build, build_data
from minitf.runs import load_run
from minitf.training.checkpoint import find_checkpoint, read_checkpoint
from minitf.training.saving import RunCheckpoint
from minitf.training.status import read_status

SECONDS = 30
ROOM = 12 << 30  # bytes of address space beside what the process has; a valid command line needs far less
MOST_LINES = 8


class TooSlow(BaseException):
    """No `except Exception` may swallow it."""


class Finding(AssertionError):
    """What no command line may cause."""


@dataclass
class Result:
    """How one command ended: its exit code, what it printed, and the trace of what escaped from it."""

    code: int
    out: str
    err: str
    trace: str = ""


def try_case(case: Case, folder: Path) -> str:
    """Train, stop, go on; or be refused. Returns "trained" or "refused: ...".

    Args:
        case: the command line.
        folder: an empty place for its runs.

    Raises:
        Finding: it did neither.
    """
    draw = random.Random(f"run {case.seed}")
    run, stop_at, unbroken = folder / "run", draw.choice((1, 2)), draw.random() < 0.1
    first = command([*case.overrides, f"hydra.run.dir='{run}'"], stop_at)
    if first.code == 2:
        _check_refusal(case, first, run)
        return f"refused: {first.err.strip()}"
    if case.sure:
        raise Finding(f"it should have been refused, and ended with code {first.code}\n{first.err}")
    if first.code == 143:
        _expect(run, "interrupted", stop_at)
        steps = read_checkpoint(find_checkpoint(run, "last"))["config"]["trainer"]["max_steps"]
        longer = [] if steps <= 4 else ["trainer.max_steps=4"]
    elif first.code == 0:
        steps = read_status(run)["step"]
        longer = [f"trainer.max_steps={steps + 2}"]
        _expect(run, "finished", steps)
    else:
        raise Finding(f"exit code {first.code}\n{first.trace or first.err}")
    second = command([f"resume={run}", *longer])
    if second.code == 2 and "optim.lr" in second.err and read_status(run)["status"] == "failed":  # it has diverged
        return f"refused: {second.err.strip()}"
    if second.code != 0:
        raise Finding(f"going on: exit code {second.code}\n{second.trace or second.err}")
    _expect(run, "finished", int(longer[0].partition("=")[2]) if longer else steps)
    _check_model(run)
    if unbroken and first.code == 143 and not longer:
        _check_same(case, run, folder / "unbroken")
    return "trained"


def command(arguments: list[str], stop_at: int | None = None) -> Result:
    """`minitf-train` with these arguments; SIGTERM comes at the end of step `stop_at`."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code, trace = 0, ""
    with _apart(arguments), _stopped(stop_at), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            code, trace = 1, traceback.format_exc()
    told = [stream.buffer.getvalue().decode("utf-8") for stream in (out, err)]
    return Result(code, *told, trace)


@contextmanager
def _apart(arguments: list[str]) -> Iterator[None]:
    """Nothing that one command does to this process reaches the next one; none hangs, eats the memory or forks."""

    def too_slow(*_: object) -> None:
        raise TooSlow(f"it took longer than {SECONDS} s")

    def no_processes(*_: object, **__: object) -> None:
        raise Finding("it started other processes")

    # one that was interrupted ignores further signals, as it is about to end
    earlier = {number: signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGALRM, too_slow)
    cwd = os.getcwd()
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with (
        patch.dict(os.environ),
        patch.object(sys, "argv", ["minitf-train", *arguments]),
        patch.object(_SubprocessScriptLauncher, "launch", no_processes),
        patch.object(summary, "SAMPLE_CHARACTERS", 20),  # a sample of 200 takes longer than the training
    ):
        try:
            resource.setrlimit(resource.RLIMIT_AS, (_address_space() + ROOM, hard))
            signal.alarm(SECONDS)
            yield
        finally:
            signal.alarm(0)
            for number, handler in earlier.items():
                signal.signal(number, handler)
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
            os.chdir(cwd)
            GlobalHydra.instance().clear()
            torch.set_num_threads(threads)
            torch.set_default_dtype(dtype)


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


@contextmanager
def _stopped(step: int | None) -> Iterator[None]:
    """Send this process SIGTERM when a run ends that step."""
    original = RunCheckpoint._end_step

    def end_step(self: RunCheckpoint, trainer: object, *args: object, **kwargs: object) -> None:
        if trainer.global_step == step:
            os.kill(os.getpid(), signal.SIGTERM)
        original(self, trainer, *args, **kwargs)

    with patch.object(RunCheckpoint, "_end_step", end_step):
        yield


def _check_refusal(case: Case, result: Result, run: Path) -> None:
    message = result.err.strip()
    lines = message.splitlines()
    if not lines or not lines[0].startswith("error: ") or not lines[0].removeprefix("error: ").strip():
        raise Finding(f"no message: {message!r}")
    if len(lines) > MOST_LINES or "Traceback" in message:
        raise Finding(f"not one message of at most {MOST_LINES} lines:\n{message}")
    if not any(word in message for override in case.overrides for word in _words(override)):
        raise Finding(f"the message names nothing that was typed: {message}")
    status = read_status(run) if run.exists() else None
    if status is None and run.exists():
        raise Finding(f"refused, but left {[str(path.relative_to(run)) for path in run.rglob('*')]}: {message}")
    if status is not None and (status["status"] != "failed" or not status["reason"]):
        raise Finding(f"{message}\nbut the status is {status}")
    if status is not None and case.sure:
        raise Finding(f"refused only after the run had begun: {message}")


def _words(override: str) -> list[str]:
    """What a message may name: a part of the key, the group, the value."""
    key, _, value = override.lstrip("+~").partition("=")
    return [word for word in (*key.split("."), key.split("@")[0], value) if word]


def _expect(run: Path, status: str, step: int) -> None:
    found = read_status(run)
    if (found["status"], found["step"]) != (status, step):
        raise Finding(f"the run should be {status} at step {step}: {found}")


def _check_model(run: Path) -> None:
    """The run loads as a user loads it, and its numbers are numbers."""
    model, _, cfg = load_run(run, "last")
    data, objective = build_data(cfg).prepare(lambda line: None), build(cfg.task)
    fit_to_task(data, objective)
    with torch.no_grad():
        loss, _ = objective(model, data.train_batch(0))
    if not loss.isfinite():
        raise Finding(f"it finished, but the loss of the model that it leaves is {loss}")
    shutil.rmtree(run / "wandb", ignore_errors=True)


def _check_same(case: Case, run: Path, folder: Path) -> None:
    """A run that was never stopped has the same weights, bit for bit."""
    whole = command([*case.overrides, f"hydra.run.dir='{folder}'"])
    if whole.code != 0:
        raise Finding(f"not stopped, it ended with code {whole.code}\n{whole.trace or whole.err}")
    a, b = (read_checkpoint(find_checkpoint(place, "last"))["state_dict"] for place in (run, folder))
    different = [name for name in a if not torch.equal(a[name], b[name])]
    if different or set(a) != set(b):
        raise Finding(f"stopped and resumed, it has other weights than unbroken: {different}")
