import parts
import pytest
from omegaconf import OmegaConf
from training_stubs import Batches, fit, make_task

from minitf.analysis.over_time import over_time
from minitf.config import build, compose
from minitf.errors import ConfigError
from minitf.runs import load_run, snapshots
from minitf.training.callbacks import default_callbacks
from minitf.training.checkpoint import checkpoints, find_checkpoint, read_checkpoint
from minitf.training.saving import RunCheckpoint
from minitf.training.snapshots import SnapshotSchedule
from minitf.training.stop import StopSignals


def steps(schedule, n=40):
    return [step for step in range(n) if schedule.due(step)]


def test_steps_of_each_schedule():
    assert steps(SnapshotSchedule(log=1)) == [0, 1, 2, 4, 8, 16, 32]
    assert steps(SnapshotSchedule(log=2)) == [0, 1, 2, 3, 4, 6, 8, 11, 16, 23, 32]
    assert steps(SnapshotSchedule(every=10)) == [10, 20, 30]
    assert steps(SnapshotSchedule(every=16, log=1, steps=(0, 7))) == [0, 1, 2, 4, 7, 8, 16, 32]
    assert steps(SnapshotSchedule()) == []


def test_a_log_schedule_has_that_many_for_each_doubling_far_out():
    kept = [step for step in range(2**14, 2**15) if SnapshotSchedule(log=4).due(step)]
    assert len(kept) == 4


def test_a_run_keeps_its_untrained_weights_and_those_on_the_schedule(tmp_path):
    task = make_task()
    first = {name: value.clone() for name, value in task.model.state_dict().items()}
    saver = RunCheckpoint(tmp_path, {"seed": 0}, snapshots=SnapshotSchedule(log=1, steps=(5,)))
    fit(task, tmp_path, Batches(6), max_steps=6, callbacks=[saver], checkpoint=False)
    assert sorted(step for step, _ in checkpoints(tmp_path / "checkpoints", "snapshot")) == [0, 1, 2, 4, 5]
    kept = read_checkpoint(find_checkpoint(tmp_path, "0"))
    assert all(kept["state_dict"][f"model.{name}"].equal(value) for name, value in first.items())


def test_snapshots_are_loaded_and_measured_along_the_run(tmp_path):
    node = parts.node("gpt_tiny")
    config = {"model": OmegaConf.to_container(node, resolve=True)}
    (tmp_path / "config.yaml").write_text(OmegaConf.to_yaml(config), encoding="utf-8")
    saver = RunCheckpoint(tmp_path, config, snapshots=SnapshotSchedule(log=1))
    task = make_task(build(node))
    fit(task, tmp_path, Batches(4), max_steps=4, callbacks=[saver], checkpoint=False)
    course = over_time(
        lambda step: load_run(tmp_path, which=step)[0], snapshots(tmp_path), lambda m: m.head.weight.sum()
    )
    assert [step for step, _ in course] == [0, 1, 2, 4]
    assert course[-1][1] == task.model.head.weight.sum()
    assert len({float(value) for _, value in course}) == 4


def test_the_option_and_what_may_be_added_to_it(tmp_path):
    cfg = compose("train", ["callbacks=snapshots", "callbacks.snapshot_steps=[300,325]", "callbacks.health_every=50"])
    made = build(cfg.callbacks)(run_dir=tmp_path, config={}, stop=StopSignals())
    assert made[-1].snapshots == SnapshotSchedule(log=1, steps=(300, 325))
    assert len(made) == 3


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"snapshot_log": 0}, r"callbacks.snapshot_log \(0\)"),
        ({"snapshot_steps": [3, -1]}, "snapshot_steps holds -1"),
        ({"snapshot_steps": [2.5]}, "snapshot_steps holds 2.5"),
        ({"health_every": 0}, r"callbacks.health_every \(0\)"),
        ({"health_every": 5, "health_rows": 0}, r"callbacks.health_rows \(0\)"),
    ],
)
def test_numbers_out_of_range_are_refused(tmp_path, setting, words):
    with pytest.raises(ConfigError, match=words):
        default_callbacks(tmp_path, {}, StopSignals(), **setting)
