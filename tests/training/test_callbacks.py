import io
import logging
import sys

import lightning as L
import pytest
from training_stubs import Batches, fit, make_task

from minitf.training.callbacks import PlainProgress, StepBar, default_callbacks, format_seconds, quiet_lightning
from minitf.training.saving import RunCheckpoint
from minitf.training.stop import StopSignals


def progress_lines(text):
    return [line for line in text.splitlines() if line.startswith("step ")]


def test_plain_lines_come_now_and_then(tmp_path, capsys):
    ticks = iter(range(10_000))
    progress = PlainProgress(every_seconds=10, clock=lambda: next(ticks))  # a second goes by at each look
    fit(make_task(val_bytes=100), tmp_path, Batches(40), max_steps=40, val_every=30, callbacks=[progress])
    out, err = capsys.readouterr()
    lines = progress_lines(out)
    steps = [line.split()[1] for line in lines]
    assert steps[0] == "1/40"
    assert steps[-1] == "40/40"
    assert "30/40" in steps
    assert 5 <= len(lines) <= 8
    assert lines[0].split("  ")[1].startswith("loss ")
    assert lines[-1].endswith("done")
    assert [word.split()[0] for word in lines[-1].split("  ")[1:-1]] == ["loss", "val", "bits/byte", "lr", "tokens/s"]
    assert "\r" not in out + err


def test_time_left_is_the_share_of_the_steps(tmp_path, capsys):
    ticks = iter(range(0, 10_000, 3))
    progress = PlainProgress(every_seconds=0, clock=lambda: next(ticks))
    fit(make_task(log_every=2), tmp_path, Batches(4), max_steps=4, callbacks=[progress])
    first = progress_lines(capsys.readouterr().out)[0]
    assert first.startswith("step 2/4")
    assert first.endswith("  6 s left")  # two looks of 3 s for 2 of 4 steps


def test_the_bar_counts_optimizer_steps(tmp_path, monkeypatch):
    terminal = io.StringIO()
    monkeypatch.setattr(sys, "stdout", terminal)
    bar = StepBar()
    fit(make_task(), tmp_path, Batches(6, n_micro=2), max_steps=6, accumulate=2, callbacks=[bar])
    assert (bar.train_progress_bar.n, bar.train_progress_bar.total) == (6, 6)
    assert "v_num" not in terminal.getvalue()
    assert "loss=" in terminal.getvalue()


@pytest.mark.parametrize(("terminal", "kind"), [(True, StepBar), (False, PlainProgress)])
def test_the_kind_of_progress_follows_standard_output(tmp_path, monkeypatch, terminal, kind):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    progress, checkpoint = default_callbacks(tmp_path, {"seed": 1}, StopSignals(), every_seconds=3)
    assert isinstance(progress, kind)
    assert isinstance(checkpoint, RunCheckpoint)


def test_durations_are_readable():
    shown = [format_seconds(s) for s in (0.4, 59.4, 61, 3599, 3723)]
    assert shown == ["0 s", "59 s", "1 min 01 s", "59 min 59 s", "1 h 02 min"]


def test_a_quiet_lightning_neither_advertises_nor_doubles(tmp_path, caplog, capsys):
    quiet_lightning()
    fit(make_task(), tmp_path, Batches(2), max_steps=2)
    with caplog.at_level(logging.WARNING):
        logging.getLogger("lightning.pytorch.utilities.rank_zero").warning("this matters")
    assert [record.message for record in caplog.records] == ["this matters"]
    assert not logging.getLogger("lightning.pytorch").handlers
    out, err = capsys.readouterr()
    assert "Tip" not in out + err
    assert "GPU available" not in out + err
    assert isinstance(L.__version__, str)
