"""The train command with several processes, started as a user starts it: one run, one folder, one voice."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from runs import TOY, train_here, write_corpus

from minitf.command_line import Job
from minitf.commands.train import train
from minitf.config import compose, config_dir
from minitf.errors import ConfigError
from minitf.runs import load_run
from minitf.training.checkpoint import find_checkpoint, read_checkpoint
from minitf.training.metrics import read_metrics

SCRIPT = config_dir().parent / "scripts" / "train.py"
EXACT = [*TOY, "optim=adamw", "trainer.precision=32-true", "trainer.log_every=1", "trainer.max_steps=12"]
TORCHRUN = ["-m", "torch.distributed.run", "--nproc_per_node=2"]

pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="an installed package has no scripts")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a corpus, a cache and `one`: the run of one process."""
    place = tmp_path_factory.mktemp("with space")
    write_corpus(place / "corpus")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINITF_CACHE", str(place / "cache"))
        train_here(place / "one", [*EXACT, f"data.source.path={place / 'corpus'}"])
    return place


def surroundings(place: Path) -> dict[str, str]:
    """The environment of a command; the seed of an earlier run in this process is not in it."""
    own = {"MINITF_CACHE": str(place / "cache"), "OMP_NUM_THREADS": "1"}
    return {name: value for name, value in os.environ.items() if name != "PL_GLOBAL_SEED"} | own


def run_command(place: Path, launcher: list[str], *overrides: str) -> subprocess.CompletedProcess:
    """The command in a folder of its own inside `place`; the corpus is ../corpus."""
    cwd = place / f"from {len(list(place.iterdir()))}"
    cwd.mkdir()
    typed = [*EXACT, "data.source.path=../corpus"]
    env = surroundings(place)
    done = subprocess.run(
        [sys.executable, *launcher, str(SCRIPT), *typed, *overrides],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )
    done.cwd = cwd
    return done


def only_run(done: subprocess.CompletedProcess) -> Path:
    assert done.returncode == 0, done.stderr
    assert [p.name for p in done.cwd.iterdir()] == ["runs"]
    (run,) = (done.cwd / "runs").iterdir()
    return run


def assert_same_run(run: Path, one: Path) -> None:
    assert json.loads((run / "status.json").read_text())["status"] == "finished"
    assert {p.name for p in run.iterdir()} == {p.name for p in one.iterdir()}
    expected, got = read_metrics(one), read_metrics(run)
    assert [row["step"] for row in got] == [row["step"] for row in expected], "not one row per step"
    for a, b in zip(expected, got, strict=True):
        for name, tolerance in {"train/loss": 1e-6, "val/loss": 1e-6, "train/grad_norm": 1e-4}.items():
            assert (name in a) == (name in b)
            if name in a:
                assert b[name] == pytest.approx(a[name], rel=tolerance), (name, a["step"])
    load_run(run, "last")


@pytest.mark.slow
def test_two_processes_are_one_run(place):
    done = run_command(place, [], "trainer=ddp")
    assert_same_run(only_run(done), place / "one")
    assert done.stdout.count("training ") == done.stdout.count("run folder") + 1 == 2
    assert done.stderr == ""


@pytest.mark.slow
def test_torchrun_makes_one_run(place):
    done = run_command(place, TORCHRUN)
    assert_same_run(only_run(done), place / "one")
    assert done.stdout.count("step 12/12") == 1


@pytest.mark.slow
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_sharded_run_is_the_same_run(place, accumulate):
    done = run_command(place, [], "trainer=fsdp", f"trainer.accumulate={accumulate}")
    assert_same_run(only_run(done), place / "one")
    assert "a sample of" in done.stdout


@pytest.mark.slow
def test_a_run_of_two_that_diverges_says_so_once(place):
    done = run_command(place, [], "trainer=ddp", "trainer.clip_norm=null", "optim.lr=1e30")
    assert done.returncode == 2
    assert done.stderr.count("error:") == 1
    assert "loss or gradient is not finite in step 2 (learning rate" in done.stderr
    (run,) = (done.cwd / "runs").iterdir()
    assert json.loads((run / "status.json").read_text())["status"] == "failed"


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [[], TORCHRUN], ids=["started by Lightning", "torchrun"])
def test_a_signal_stops_all_processes_at_one_step_and_the_run_goes_on(place, launcher):
    long = ["trainer=ddp", "trainer.max_steps=200", "model.dropout=0.1", "trainer.val_every=70"]
    whole = only_run(run_command(place, launcher, *long))
    cwd = place / f"stopped {launcher[-1:]}"
    cwd.mkdir()
    typed = [*EXACT, f"data.source.path={place / 'corpus'}", *long, "callbacks.every_seconds=0", "hydra.run.dir=run"]
    process = subprocess.Popen(
        [sys.executable, *launcher, str(SCRIPT), *typed],
        cwd=cwd,
        env=surroundings(place),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
    )
    output = []
    for line in process.stdout:
        output.append(line)
        if line.startswith("step 60/"):
            process.terminate()
    assert process.wait(60) == (1 if launcher else 143)  # torchrun has a code of its own
    status = json.loads((cwd / "run" / "status.json").read_text())
    assert (status["status"], status["reason"]) == ("interrupted", "SIGTERM")
    assert 60 <= status["step"] < 200
    assert sum(line.startswith("interrupted by SIGTERM after step") for line in output) == 1
    again = subprocess.run(
        [sys.executable, *launcher, str(SCRIPT), "resume=run"],
        cwd=cwd,
        env=surroundings(place),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert again.returncode == 0, again.stderr
    a, b = (read_checkpoint(find_checkpoint(run, "last")) for run in (whole, cwd / "run"))
    assert a["global_step"] == b["global_step"] == 200
    assert all(torch.equal(a["state_dict"][name], b["state_dict"][name]) for name in a["state_dict"])


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.2])
def test_ctrl_c_while_the_processes_are_still_starting(place, delay):
    cwd = place / f"early {delay}"
    cwd.mkdir()
    typed = [*EXACT, f"data.source.path={place / 'corpus'}", "trainer=ddp", "hydra.run.dir=run"]
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), *typed],
        cwd=cwd,
        env=surroundings(place),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        start_new_session=True,
    )
    output = []
    for line in process.stdout:
        output.append(line)
        if line.startswith("training "):
            time.sleep(delay)
            os.killpg(process.pid, signal.SIGINT)
    assert process.wait(60) == 130, output
    assert output[-1].startswith("interrupted by SIGINT after step 1 (saved); go on with: ")
    assert json.loads((cwd / "run" / "status.json").read_text())["status"] == "interrupted"


@pytest.mark.slow
def test_a_mistake_under_torchrun_is_told_once_and_leaves_nothing(place):
    done = run_command(place, TORCHRUN, "data.batch_size=3")
    assert done.returncode != 0
    assert done.stderr.count("error: batch_size (3) rows cannot be divided") == 1
    assert [p for p in done.cwd.rglob("*") if p.name != "runs"] == []


def test_a_sweep_of_several_processes_is_refused(tmp_path):
    cfg = compose("train", [*TOY, "trainer=ddp", "data.source.path=does-not-exist"])
    with pytest.raises(ConfigError, match=r"sweep \(-m\).*none of them can have 2.*trainer=ddp seed="):
        train(cfg, Job(folder=tmp_path, choices={}, overrides=[], sweep=tmp_path))
    assert list(tmp_path.iterdir()) == []
