"""Runs that are stopped from outside, resumed, or one of several in a sweep: as a user does it, by processes."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import parts
import pytest
import torch
from omegaconf import OmegaConf
from runs import TOY, command, train_here, write_corpus

from minitf.errors import ConfigError, DataError
from minitf.training.checkpoint import find_checkpoint, read_checkpoint
from minitf.training.metrics import read_metrics
from minitf.training.saving import RunCheckpoint
from minitf.training.status import Status, read_status
from minitf.training.stop import Interrupted

CODE = "import sys; sys.argv[0] = 'minitf-train'; from minitf.commands.train import main; main()"
LONG = "trainer.max_steps=1000000"


@pytest.fixture
def here(tmp_path, toy, monkeypatch):
    """A folder to start commands in, with the corpus of the toy run."""
    (tmp_path / "corpus").symlink_to(toy.parent / "corpus")
    monkeypatch.setenv("MINITF_CACHE", str(toy.parent / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


SOURCE = "data.source.path=corpus"


def stop_when_trained(arguments, number, steps=15, shell=False):
    """Start a command, send it a signal after some steps; returns (exit code, output)."""
    start = ["sh", "-c", '"$@" & echo $!; wait $!', "sh"] if shell else []
    process = subprocess.Popen(
        [*start, sys.executable, "-c", CODE, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    )
    pid = int(process.stdout.readline()) if shell else process.pid
    lines = []
    guard = threading.Timer(90, process.kill)
    guard.start()
    for line in process.stdout:
        lines.append(line)
        if re.match(rf"step {steps}/", line):
            os.kill(pid, number)
    guard.cancel()
    return process.wait(), "".join(lines)


@pytest.mark.parametrize(
    ("number", "code", "shell"),
    [
        pytest.param(signal.SIGTERM, 143, False, id="SIGTERM"),
        pytest.param(signal.SIGINT, 130, False, id="SIGINT", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 130, True, id="SIGINT to a job in the background", marks=pytest.mark.slow),
    ],
)
def test_a_signal_saves_the_exact_step_and_the_run_goes_on(here, number, code, shell):
    run = here / "run"
    typed = [*TOY, SOURCE, LONG, "trainer.val_every=1000000", "callbacks.every_seconds=0", f"hydra.run.dir={run}"]
    rc, output = stop_when_trained(typed, number, shell=shell)
    assert rc == code, output
    status = read_status(run)
    name = signal.Signals(number).name
    assert (status["status"], status["reason"]) == ("interrupted", name)
    assert status["step"] >= 15
    assert read_checkpoint(find_checkpoint(run, "last"))["global_step"] == status["step"]
    line = f"interrupted by {name} after step {status['step']} (saved); go on with: minitf-train resume=run"
    assert output.splitlines()[-1] == line
    assert "Traceback" not in output
    train_here(run, [f"trainer.max_steps={status['step'] + 5}"], resume=True)
    assert read_status(run)["status"] == "finished"
    assert json.loads((run / "metrics.json").read_text())["steps"] == status["step"] + 5


def test_a_signal_while_the_run_is_marked_finds_it_marked(here, monkeypatch):
    written = Status.running

    def running(self, step=0):
        written(self, step)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Status, "running", running)
    with pytest.raises(Interrupted):
        train_here(here / "run", [*TOY, SOURCE])
    assert read_status(here / "run")["status"] == "interrupted"


@pytest.mark.slow
def test_a_signal_before_training_leaves_nothing_that_says_running(here):
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, *TOY, "data.source.path=corpus", "hydra.run.dir=run"],
        env=os.environ | {"MINITF_CACHE": str(here / "another-cache")},
        stdout=subprocess.PIPE,
        text=True,
    )
    while read_status(here / "run") is None and process.poll() is None:
        time.sleep(0.01)
    process.terminate()
    output = process.communicate()[0]
    assert process.returncode == 143
    assert read_status(here / "run")["status"] == "interrupted"
    assert "interrupted by SIGTERM before the first step" in output


def equal_runs(a, b):
    states = [read_checkpoint(find_checkpoint(run, "last"))["state_dict"] for run in (a, b)]
    rows = [[{k: v for k, v in row.items() if "per_s" not in k} for row in read_metrics(run)] for run in (a, b)]
    return rows[0] == rows[1] and all(torch.equal(states[0][k], states[1][k]) for k in states[0])


@pytest.fixture(scope="session")
def stopped_once(toy, tmp_path_factory):
    base = tmp_path_factory.mktemp("stopped")
    (base / "corpus").symlink_to(toy.parent / "corpus")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINITF_CACHE", str(toy.parent / "cache"))
        patch.chdir(base)
        return stop_at(20, base / "run", [*TOY, SOURCE])


@pytest.fixture
def stopped(here, stopped_once):
    """The toy run as it was after step 20 of 30, with rows that lie beyond."""
    return shutil.copytree(stopped_once, here / "run")


def stop_at(step, run, overrides, logger="csv"):
    """Train up to a step in the way that a kill leaves a run: `running`, and rows that were not saved."""

    def kill(self, trainer, *args):
        real(self, trainer, *args)
        if trainer.global_step == step + 3:
            raise SystemExit

    real = RunCheckpoint.on_train_batch_end
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunCheckpoint, "on_train_batch_end", kill)
        with pytest.raises(SystemExit):
            train_here(run, overrides, logger=logger)
    assert read_status(run)["status"] == "running"
    return run


def test_a_killed_run_equals_the_unbroken_one_and_a_finished_one_says_so(stopped, toy, capsys):
    assert stopped.joinpath("metrics.csv").read_text().count("\n") > 5
    (stopped / "checkpoints" / ".tmp-last-step=21.ckpt-77.part").write_bytes(b"half")
    train_here(stopped, [], resume=True)
    assert equal_runs(stopped, toy)
    assert not list(stopped.rglob("*.part"))
    assert not list(stopped.rglob(".lock"))
    record = json.loads((stopped / "record.json").read_text())
    assert [part["step"] for part in record["resumed"]] == [20]
    before = {path: path.stat().st_mtime_ns for path in stopped.rglob("*") if path.is_file()}
    capsys.readouterr()
    train_here(stopped, [], resume=True)
    assert "has finished its 30 steps" in capsys.readouterr().out
    assert before == {path: path.stat().st_mtime_ns for path in stopped.rglob("*") if path.is_file()}


def test_a_run_that_was_killed_after_its_last_step_is_finished(stopped, toy):
    train_here(stopped, [], resume=True)
    (stopped / "metrics.json").unlink()
    (stopped / "status.json").write_text('{"status": "running"}')
    train_here(stopped, [], resume=True)
    assert read_status(stopped)["status"] == "finished"
    told, expected = (json.loads((run / "metrics.json").read_text()) for run in (stopped, toy))
    for key in ("seed", "n_params", "steps", "best", "baseline"):
        assert told[key] == expected[key]
    for name, value in expected["final"].items():
        assert "per_s" in name or told["final"][name] == value
    assert told["train_tokens_per_s"] > 0


def test_a_run_without_a_checkpoint_begins_again_in_its_folder(here, toy):
    run = stop_at(2, here / "run", [*TOY, SOURCE])
    assert not list(run.glob("checkpoints/*"))
    train_here(run, [], resume=True)
    assert equal_runs(run, toy)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["model.n_layers=3"], r"so model.n_layers cannot be given: only trainer.max_steps,"),
        (["optim=adamw"], "so optim cannot be given"),
        (["+trainer.val_every=3"], "so trainer.val_every cannot be given"),
        (["hydra.run.dir=x"], "so hydra.run.dir cannot be given"),
        (["trainer.max_steps=7"], "has done 20 steps already; trainer.max_steps=7 is fewer"),
        (["trainer.max_steps=0"], "max_steps"),
        (["-m"], "a sweep goes on when its own command is given again"),
    ],
)
def test_what_may_not_change_is_refused_by_name(stopped, monkeypatch, capsys, typed, message):
    from minitf.commands.train import main

    before = {path: path.stat().st_mtime_ns for path in stopped.rglob("*") if path.is_file()}
    monkeypatch.setattr(sys, "argv", ["minitf-train", "resume=run", *typed])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert re.search(message, capsys.readouterr().err)
    assert before == {path: path.stat().st_mtime_ns for path in stopped.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_length_and_logging_may_change(stopped):
    train_here(stopped, ["trainer.max_steps=26", "trainer.log_every=2", "logger=wandb"], resume=True)
    steps = [row["step"] for row in read_metrics(stopped) if "train/loss" in row]
    assert steps == [5, 10, 15, 20, 22, 24, 26]
    assert len(list(stopped.glob("wandb/offline-run-*"))) == 1


def test_a_config_that_was_edited_is_refused(stopped):
    text = (stopped / "config.yaml").read_text()
    (stopped / "config.yaml").write_text(text.replace("val_every: 10", "val_every: 11"))
    with pytest.raises(ConfigError, match=r"config.yaml was changed .*: trainer.val_every was 10 and is 11"):
        train_here(stopped, [], resume=True)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: (run / "metrics.csv").unlink(), "lacks metrics.csv, which every run has"),
        (lambda run: (run / "record.json").unlink(), "lacks record.json"),
        (lambda run: (run / "config.yaml").write_text("a: [1"), "config.yaml cannot be read as a config"),
        (lambda run: (run / "config.yaml").write_text("a: 1"), "is no config of a run; it lacks model, data"),
        (lambda run: cut(find_checkpoint(run, "last")), "cannot be read as a checkpoint"),
        (lambda run: change(run, lambda state: state.pop("loops")), r"lacks what a run goes on with \(loops\)"),
        (lambda run: change(run, widen), r"do not fit the model.*\n.*shape of .*\(300, 33\) stored, \(300, 32\)"),
    ],
)
def test_a_damaged_run_is_refused(stopped, damage, message):
    damage(stopped)
    with pytest.raises(ConfigError, match=message):
        train_here(stopped, [], resume=True)


@pytest.mark.parametrize(
    ("name", "text"),
    parts.some_by_default(
        [
            ("record.json", "{"),
            ("record.json", "[" * 100_000),
            ("record.json", '{"choices": null, "data": {"sha256": "a"}}'),
            ("record.json", '{"choices": {"logger": "a/../b"}, "data": {"sha256": "a"}}'),
            ("metrics.csv", "step,train/loss\n5,word\n"),
            ("metrics.csv", "step,train/loss\n,1\n"),
            ("config.yaml", "a: &x [1, 2]\nb: *x\n"),
            ("config.yaml", "[1, 2]"),
        ],
        2,
    ),
)
def test_damaged_texts_give_one_message(stopped, name, text):
    (stopped / name).write_text(text)
    before = (stopped / "status.json").read_text()
    with pytest.raises((ConfigError, DataError), match=name.replace(".", r"\.")):
        train_here(stopped, [], resume=True)
    assert (stopped / "status.json").read_text() == before


@pytest.mark.parametrize(
    ("key", "value"), [("loops", {}), ("callbacks", []), ("global_step", "3"), ("optimizer_states", [])]
)
def test_damaged_checkpoints_give_one_message(stopped, key, value):
    change(stopped, lambda state: state.update({key: value}))
    with pytest.raises(ConfigError, match="do not fit together"):
        train_here(stopped, [], resume=True)


def test_an_unreadable_status_is_that_of_a_killed_run(stopped, toy):
    (stopped / "status.json").write_text("[")
    train_here(stopped, [], resume=True)
    assert equal_runs(stopped, toy)


def test_a_refused_resume_leaves_a_finished_run_finished(here, toy, tmp_path):
    run = tmp_path / "copy"
    shutil.copytree(toy, run)
    (run / "record.json").write_text((run / "record.json").read_text().replace('"sha256": "', '"sha256": "0'))
    with pytest.raises(DataError, match="not the one that this run began with"):
        train_here(run, ["trainer.max_steps=40"], resume=True)
    assert read_status(run)["status"] == "finished"


@pytest.mark.slow
def test_the_logger_stays_what_it_was_unless_it_is_typed(here, monkeypatch):
    from minitf.commands.train import main

    run = stop_at(20, here / "run", [*TOY, SOURCE, "logger=wandb", "logger.project=mine"], logger="wandb")
    for step, typed, project in [(22, [], "mine"), (24, ["logger.project=yours"], "yours"), (26, [], "yours")]:
        monkeypatch.setattr(sys, "argv", ["minitf-train", "resume=run", f"trainer.max_steps={step}", *typed])
        main()
        assert OmegaConf.load(run / "config.yaml").logger.project == project
        assert read_status(run)["step"] == step
    monkeypatch.setattr(sys, "argv", ["minitf-train", "resume=run", "trainer.max_steps=27", "logger=csv"])
    main()
    monkeypatch.setattr(sys, "argv", ["minitf-train", "resume=run", "trainer.max_steps=28"])
    main()
    assert OmegaConf.load(run / "config.yaml").logger._target_ == "minitf.training.loggers.csv"


@pytest.mark.parametrize(
    "name",
    parts.some_by_default(["my$proj", "a b", "a'b", "a\\b", "${oc.env:HOME}", "a=b,c", "\u732b", "~no-such-user"], 4),
)
def test_whatever_the_folder_is_called(here, stopped, toy, monkeypatch, name):
    from minitf.commands.train import main

    run = stopped.rename(here / name)
    monkeypatch.setattr(sys, "argv", ["minitf-train", f"resume={name}"])
    main()
    assert equal_runs(run, toy)
    assert {path.name for path in here.iterdir()} == {name, "corpus"}


def test_a_second_signal_disturbs_nothing(here, monkeypatch, capsys):
    """While the first one is being told, and when the process has been told."""
    from minitf.training.status import Status

    real = Status.interrupted

    def interrupted(self, *args):
        signal.raise_signal(signal.SIGINT)
        real(self, *args)
        signal.raise_signal(signal.SIGTERM)

    def stop(self, trainer):
        if trainer.global_step == 7:
            signal.raise_signal(signal.SIGINT)
        return real_wish(self, trainer)

    real_wish = RunCheckpoint._wish_to_stop
    monkeypatch.setattr(Status, "interrupted", interrupted)
    monkeypatch.setattr(RunCheckpoint, "_wish_to_stop", stop)
    with pytest.raises(Interrupted, match="SIGINT"):
        train_here(here / "run", [*TOY, SOURCE])
    signal.raise_signal(signal.SIGINT)
    assert read_status(here / "run")["status"] == "interrupted"
    assert "interrupted by SIGINT after step 7 (saved)" in capsys.readouterr().out
    assert not list((here / "run").rglob(".lock"))


def cut(path):
    path.write_bytes(path.read_bytes()[:-1000])


def change(run, edit):
    path = find_checkpoint(run, "last")
    state = read_checkpoint(path)
    edit(state)
    torch.save(state, path)


def widen(state):
    name = "model.head.weight"
    state["state_dict"][name] = torch.zeros(300, 33)


def test_other_text_is_refused(stopped, here, tmp_path_factory):
    other = write_corpus(tmp_path_factory.mktemp("other") / "corpus")
    (other / "000.txt").write_text("something else\n" * 30)
    (here / "corpus").unlink()
    (here / "corpus").symlink_to(other)
    with pytest.raises(DataError, match="not the one that this run began with"):
        train_here(stopped, [], resume=True)


@pytest.mark.slow
def test_two_processes_never_train_in_one_folder(here):
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, *TOY, SOURCE, LONG, "hydra.run.dir=run"], stdout=subprocess.DEVNULL
    )
    try:
        while read_status(here / "run") is None:
            assert process.poll() is None
            time.sleep(0.01)
        for resume in (False, True):
            with pytest.raises(ConfigError, match="another process is training in"):
                train_here(here / "run", [*TOY, SOURCE], resume=resume)
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_sweep_names_what_failed_runs_the_rest_and_is_done_once(here):
    typed = ["-m", *TOY, SOURCE, "trainer.max_steps=5", "model.attention.n_heads=4,3,2", "hydra.sweep.dir=sweep"]
    done = command("train", *typed, cwd=here)
    assert done.returncode == 1, done.stderr
    assert "1 of 3 jobs failed" in done.stderr
    failed = r"sweep.1-gpt_tiny-text_files-s0 \(model.attention.n_heads=3\): .*multiple of n_heads \(3\)"
    assert re.search(failed, done.stderr)
    assert re.search(r"the sweep goes on with: minitf-train -m .* hydra.sweep.dir=sweep", done.stderr)
    assert "Traceback" not in done.stderr
    folders = sorted(path.name[0] for path in (here / "sweep").iterdir() if path.is_dir())
    assert folders == ["0", "2"]
    times = {path: path.stat().st_mtime_ns for path in (here / "sweep").glob("[02]*/*") if path.is_file()}
    again = command("train", *typed[:-2], "model.attention.n_heads=4,1,2", typed[-1], cwd=here)
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("has finished its 5 steps") == 2
    assert again.stdout.count("run folder ") == 1
    assert times == {path: path.stat().st_mtime_ns for path in times}
    other = command("train", *typed[:-2], "model.attention.n_heads=8,1,2", typed[-1], cwd=here)
    assert other.returncode == 1
    different = "0-gpt_tiny-text_files-s0 holds a run with another config: model.attention.n_heads was 4 and is 8"
    assert different in other.stderr


@pytest.mark.parametrize("typed", ["model.n_layer=1,2", "model=gpt_tiny,gpt_tny", "trainer=ddp seed=0,1"])
def test_a_sweep_that_is_refused_leaves_nothing(here, monkeypatch, capsys, typed):
    from minitf.commands.train import main

    monkeypatch.setattr(sys, "argv", ["minitf-train", "-m", *TOY, SOURCE, *typed.split()])
    with pytest.raises(SystemExit):
        main()
    assert [path.name for path in here.iterdir()] == ["corpus"], capsys.readouterr().err


def test_a_signal_between_two_jobs_tells_how_the_sweep_goes_on(here, monkeypatch, capsys):
    from minitf import command_line
    from minitf.commands.train import main

    class Second(command_line.Job):
        def __init__(self, *args, **fields):
            super().__init__(*args, **fields)
            if fields["folder"].name.startswith("1"):
                signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(command_line, "Job", Second)
    monkeypatch.setattr(sys, "argv", ["minitf-train", "-m", *TOY, SOURCE, "trainer.max_steps=5", "seed=0,1"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 143
    told = capsys.readouterr().err.strip()
    assert re.fullmatch(r"interrupted by SIGTERM; the sweep goes on with: minitf-train -m .*sweep.dir=runs/\S+", told)


@pytest.mark.slow
def test_a_signal_ends_the_whole_sweep_which_goes_on_with_its_own_command(here):
    typed = ["-m", *TOY, SOURCE, "trainer.max_steps=400", "callbacks.every_seconds=0", "seed=0,1"]
    rc, output = stop_when_trained(typed, signal.SIGTERM)
    assert rc == 143, output
    (sweep,) = (here / "runs").iterdir()
    (job,) = (path for path in sweep.iterdir() if path.is_dir())
    step = read_status(job)["step"]
    assert 15 <= step < 400
    line = output.splitlines()[-1]
    assert line.startswith(f"interrupted by SIGTERM after step {step} (saved); the sweep goes on with: minitf-train -m")
    assert line.endswith(f"hydra.sweep.dir=runs/{sweep.name}")
    again = command("train", *line.split("minitf-train ")[1].split(), cwd=here)
    assert again.returncode == 0, again.stderr
    assert f"for 400 steps, from step {step} on" in again.stdout
    assert [read_status(path)["status"] for path in sweep.iterdir() if path.is_dir()] == ["finished"] * 2


def test_a_part_of_ones_own_is_resumed_and_written_with_when_it_is_allowed(here, monkeypatch, capsys):
    from minitf.commands.generate import main as generate
    from minitf.commands.train import main

    (here / "my_parts.py").write_text("from minitf.blocks.ffn.gelu import GELU\nclass Mine(GELU):\n    pass\n")
    monkeypatch.syspath_prepend(here)
    stop_at(20, here / "run", [*TOY, SOURCE, "model.ffn._target_=my_parts.Mine"])

    def call(work, *typed):
        monkeypatch.setattr(sys, "argv", ["minitf", *typed])
        try:
            work()
            code = 0
        except SystemExit as ended:
            code = ended.code
        return code, capsys.readouterr()

    code, told = call(main, "resume=run")
    assert code == 2
    assert "names 'my_parts.Mine'" in told.err
    assert "allow=[my_parts]" in told.err
    assert call(main, "resume=run", "allow=[my_parts]")[0] == 0
    assert read_status(here / "run")["status"] == "finished"
    assert call(generate, "run=run", "max_new_tokens=3")[0] == 2
    assert call(generate, "run=run", "max_new_tokens=3", "allow=[my_parts]")[0] == 0
    assert call(main, "resume=run", "allow=[os]")[1].err.count("would let a stranger's config run anything") == 1
