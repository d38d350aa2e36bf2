"""A run that is stopped and goes on equals the unbroken one, bit for bit."""

import signal
import threading
from contextlib import nullcontext

import parts
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from training_stubs import ADAMW, MUON, Batches, TinyDecoder, fit, history, make_task

from minitf.training import schedule
from minitf.training.checkpoint import find_checkpoint, load_weights, model_weights, read_checkpoint
from minitf.training.metrics import MetricsCsv, read_metrics
from minitf.training.saving import RunCheckpoint
from minitf.training.stop import Interrupted, StopSignals

N = 24
SETTINGS = {"accumulate": 2, "val_every": 4, "checkpoint": False}


def task_of(optimizer):
    def make_schedule(optimizer, n_steps):
        return schedule.cosine(optimizer, n_steps=n_steps, warmup_steps=3, min_ratio=0.1)

    return make_task(TinyDecoder(dropout=0.3), optimizer=optimizer, make_schedule=make_schedule, log_every=3)


class StopAt(Callback):
    """Ask for a stop in the middle of the step that follows `step`."""

    def __init__(self, stop, *steps):
        self.stop, self.steps = stop, steps

    def on_train_batch_start(self, trainer, *args):
        if trainer.global_step + 1 in self.steps:
            self.stop.requested = "SIGTERM"


def part(folder, optimizer, *stops, n_steps=N, **saving):
    """Train until the first of `stops` that is not behind, or to the end; go on where the folder stands."""
    stop = StopSignals()
    task = task_of(optimizer)
    found = list(folder.glob("checkpoints/last-*"))
    last = find_checkpoint(folder, "last") if found else None
    start = read_checkpoint(last)["global_step"] if last else 0
    if last:
        MetricsCsv(folder).cut(start)
    saver = RunCheckpoint(folder, {"seed": 0}, stop=stop, **saving)
    callbacks = [StopAt(stop, *(s for s in stops if s > start)), saver]
    settings = SETTINGS | {"callbacks": callbacks, "ckpt_path": last}
    try:
        trainer = fit(task, folder, Batches(n_steps, 2, start_step=start), max_steps=n_steps, **settings)
    except Interrupted:
        return task, None
    return task, trainer


def everything(folder):
    rows = [{k: v for k, v in row.items() if k != "train/tokens_per_s"} for row in read_metrics(folder)]
    saved = read_checkpoint(find_checkpoint(folder, "last"))
    best = read_checkpoint(find_checkpoint(folder, "best"))
    return rows, saved["optimizer_states"], saved["lr_schedulers"], saved["state_dict"], best["global_step"]


def equal(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    return a == b


@pytest.fixture(scope="module", params=[ADAMW, MUON], ids=["adamw", "muon"])
def whole(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    part(folder, request.param)
    return request.param, everything(folder)


@pytest.mark.parametrize("step", parts.some_by_default(list(range(1, N)), 3))
def test_stopped_after_any_step(whole, tmp_path, step):
    optimizer, expected = whole
    _, trainer = part(tmp_path, optimizer, step)
    assert trainer is None
    assert find_checkpoint(tmp_path, "last").name == f"last-step={step}.ckpt", "the exact step is saved"
    part(tmp_path, optimizer)
    assert equal(everything(tmp_path), expected)


def test_stopped_again_and_again_with_saves_and_snapshots_in_between(whole, tmp_path):
    optimizer, expected = whole
    for _ in range(9):
        part(tmp_path, optimizer, 1, 4, 5, 6, 13, 15, 23, save_every=2, snapshots=5)
    assert equal(everything(tmp_path), expected)
    snapshots = sorted(int(p.stem.split("=")[1]) for p in tmp_path.glob("checkpoints/snapshot-*"))
    assert snapshots == [5, 10, 15, 20]
    kept = read_checkpoint(find_checkpoint(tmp_path, 10))
    load_weights(TinyDecoder(seed=5), model_weights(kept))
    assert kept["config"] == {"seed": 0}
    assert "optimizer_states" not in kept


@pytest.mark.parametrize("save_every", [1, 3])
def test_killed_between_saves(whole, tmp_path, save_every):
    """Rows beyond the last save are made again."""
    optimizer, expected = whole

    class Kill(Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            if trainer.global_step == 17:
                raise KeyboardInterrupt  # Lightning's own way out: nothing is saved

    task = task_of(optimizer)
    callbacks = [Kill(), RunCheckpoint(tmp_path, {"seed": 0}, save_every=save_every)]
    with pytest.raises(SystemExit):
        fit(task, tmp_path, Batches(N, 2), max_steps=N, **SETTINGS, callbacks=callbacks)
    assert find_checkpoint(tmp_path, "last").name == f"last-step={17 if save_every == 1 else 16}.ckpt"
    part(tmp_path, optimizer)
    assert equal(everything(tmp_path), expected)


def test_a_longer_run_goes_on_from_the_end_of_a_shorter_one(tmp_path):
    part(tmp_path, ADAMW, n_steps=10)
    part(tmp_path, ADAMW, n_steps=16)
    assert list(history(tmp_path, "train/lr")) == [3, 6, 9, 10, 12, 15, 16]
    assert list(history(tmp_path, "val/loss")) == [4, 8, 10, 12, 16]
    scheduler = schedule.cosine(ADAMW(TinyDecoder()), n_steps=16, warmup_steps=3, min_ratio=0.1)
    rates = {step: 0.01 * scheduler.lr_lambdas[0](step - 1) for step in range(1, 17)}
    after = {step: rate for step, rate in history(tmp_path, "train/lr").items() if step > 10}
    assert after == pytest.approx({step: rates[step] for step in after}), "the schedule of the new length, at once"


def test_the_best_is_kept_although_the_run_was_killed_before_it_got_its_name(tmp_path):
    part(tmp_path, ADAMW, 8)
    saved = read_checkpoint(find_checkpoint(tmp_path, "last"))
    (step,) = (s["best_step"] for s in saved["callbacks"].values() if "best_step" in s)
    assert step == 8
    find_checkpoint(tmp_path, "best").rename(tmp_path / "checkpoints" / "best-step=4.ckpt")
    part(tmp_path, ADAMW, 9)
    assert find_checkpoint(tmp_path, "best").name == "best-step=8.ckpt"


def test_the_time_of_all_parts_is_counted(tmp_path):
    for stop in (4, 8):
        part(tmp_path, ADAMW, stop)
        saved = read_checkpoint(find_checkpoint(tmp_path, "last"))
        (seconds,) = (s["seconds"] for s in saved["callbacks"].values() if "seconds" in s)
        if stop == 4:
            first = seconds
    assert seconds > first > 0


def send(*signals, deferred):
    with StopSignals() as stop, stop.deferred() if deferred else nullcontext():
        for number in signals:
            signal.raise_signal(number)
            if deferred:
                assert stop.requested == signals[0].name
        assert deferred, "the signal acts at once"
        assert len(signals) == 1, "the second signal acts at once"


@pytest.mark.parametrize(
    ("signals", "deferred", "name", "code"),
    [
        ([signal.SIGTERM], False, "SIGTERM", 143),
        ([signal.SIGINT], False, "SIGINT", 130),
        ([signal.SIGINT], True, "SIGINT", 130),
        ([signal.SIGINT, signal.SIGTERM], True, "SIGTERM", 143),
    ],
)
def test_signals_act_at_once_or_wait(signals, deferred, name, code):
    with pytest.raises(Interrupted) as caught:
        send(*signals, deferred=deferred)
    assert (caught.value.name, caught.value.code) == (name, code)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN, "what follows is the end of the process"


def test_handlers_are_put_back_where_no_signal_came():
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    with StopSignals() as stop, stop, stop.deferred():
        assert all(signal.getsignal(n) != handler for n, handler in zip(numbers, before, strict=True))
    assert [signal.getsignal(number) for number in numbers] == before


def test_outside_of_the_main_thread_signals_are_left_alone():
    handlers = []

    def work():
        with StopSignals() as stop:
            stop.take_over()
            handlers.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [signal.SIG_DFL]
