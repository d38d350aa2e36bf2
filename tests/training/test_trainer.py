import pytest
import torch
from training_stubs import MUON, Batches, TinyDecoder, fit, history, make_task

from minitf.errors import ConfigError
from minitf.training import precision
from minitf.training.checkpoint import AtomicCheckpointIO
from minitf.training.trainer import make_trainer


@pytest.mark.parametrize(
    ("val_every", "max_steps", "accumulate", "expected"),
    [
        (4, 12, 1, [4, 8, 12]),
        (4, 12, 3, [4, 8, 12]),
        (5, 12, 2, [5, 10, 12]),
        (1, 3, 2, [1, 2, 3]),
        (100, 6, 4, [6]),
    ],
)
def test_validation_is_counted_in_optimizer_steps_and_comes_once_at_the_end(
    tmp_path, val_every, max_steps, accumulate, expected
):
    fit(
        make_task(),
        tmp_path,
        Batches(max_steps, n_micro=accumulate),
        max_steps=max_steps,
        val_every=val_every,
        accumulate=accumulate,
    )
    assert list(history(tmp_path, "val/loss")) == expected


def test_the_interval_may_be_longer_than_a_pass_over_the_data(tmp_path):
    """A loader of 4 steps is read again and again: validation at 5, 10, 12."""
    fit(make_task(), tmp_path, Batches(4, n_micro=2), max_steps=12, val_every=5, accumulate=2)
    assert list(history(tmp_path, "val/loss")) == [5, 10, 12]


def test_compile_keeps_names_and_values(tmp_path, monkeypatch):
    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f: real(f, backend="eager"))
    tasks = [make_task(TinyDecoder(), optimizer=MUON) for _ in range(2)]
    trainers = [
        fit(task, tmp_path / str(on), Batches(3), max_steps=3, compile=on)
        for task, on in zip(tasks, (False, True), strict=True)
    ]
    plain, compiled = (task.state_dict() for task in tasks)
    assert tasks[1].objective is not tasks[1].plain_objective
    assert list(plain) == list(compiled)
    torch.testing.assert_close(compiled, plain)
    saved = torch.load(next((tmp_path / "True" / "checkpoints").glob("last-*")), weights_only=True)
    assert list(saved["state_dict"]) == list(plain)
    assert trainers[1].global_step == 3


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"max_steps": 0}, r"trainer.max_steps \(0\)"),
        ({"val_every": -5}, r"trainer.val_every \(-5\)"),
        ({"log_every": 2.5}, r"trainer.log_every \(2.5\)"),
        ({"accumulate": "two"}, r"trainer.accumulate \('two'\)"),
        ({"clip_norm": 0}, r"trainer.clip_norm \(0\)"),
        ({"precision": "fp8"}, "auto, 32-true, bf16-mixed"),
    ],
)
def test_wrong_values(tmp_path, setting, message):
    settings = {"max_steps": 1, "val_every": 1, "log_every": 1, **setting}
    with pytest.raises(ConfigError, match=message):
        make_trainer(tmp_path, [], [], **settings)


@pytest.mark.parametrize(("has_bf16", "expected"), [(True, "bf16-mixed"), (False, "32-true")])
def test_auto_precision_follows_the_cpu(monkeypatch, has_bf16, expected):
    monkeypatch.setattr(precision, "cpu_has_bf16", lambda: has_bf16)
    assert precision.resolve_precision("auto", "cpu") == expected
    assert precision.resolve_precision("32-true", "cpu") == "32-true"
    assert ("emulates" in precision.emulated("bf16-mixed", "cpu")) is not has_bf16
    assert ("emulates" in precision.emulated("bf16-true", "cpu")) is not has_bf16
    assert precision.emulated("32-true", "cpu") == ""


def test_training_runs_under_bf16_autocast(tmp_path):
    task = make_task(optimizer=MUON)
    fit(task, tmp_path, Batches(20), max_steps=20, precision="bf16-mixed")
    losses = list(history(tmp_path, "train/loss").values())
    assert all(p.dtype == torch.float32 for p in task.model.parameters())
    assert losses[-1] < losses[0]


def test_checkpoints_of_a_trainer_are_written_whole(tmp_path):
    trainer = make_trainer(tmp_path, [], [], max_steps=1, val_every=1, log_every=1, accelerator="cpu")
    assert isinstance(trainer.strategy.checkpoint_io, AtomicCheckpointIO)
