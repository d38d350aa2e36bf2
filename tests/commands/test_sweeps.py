"""What a sweep gets from its runs, also with another launcher or sweeper than Hydra's own."""

import json
import re

import pytest
import yaml
from runs import command, train_here

from minitf.command_line import Job
from minitf.commands.train import train
from minitf.config import compose

TOY = (
    "data=repeat data.seq_len=16 data.task.least=3 data.task.most=5 data.n_val=32 data.batch_size=4 task=answer "
    "model.d_model=16 model.n_layers=1 model.attention.n_heads=2 optim=adamw schedule.warmup_steps=0 "
    "trainer.max_steps=3 trainer.precision=32-true"
).split()


def test_training_returns_its_validation_loss(tmp_path, capsys):
    run = train_here(tmp_path / "run", TOY)
    loss = json.loads((run / "metrics.json").read_text(encoding="utf-8"))["final"]["val/loss"]
    (tmp_path / "again").mkdir()
    again = train(compose("train", TOY), Job(tmp_path / "again", {"logger": "csv"}, TOY, None))
    assert again == loss
    assert train(compose("train", TOY), Job(run, {"logger": "csv"}, TOY, tmp_path)) == loss
    assert "has finished its 3 steps" in capsys.readouterr().out


@pytest.mark.slow
def test_a_sweep_by_joblib_goes_on_after_a_failure_and_says_so(tmp_path):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    heads = "model.attention.n_heads=3,2,1"
    done = command("train", "-m", "hydra/launcher=joblib", *TOY, heads, "hydra.sweep.dir=sweep", cwd=tmp_path)
    assert done.returncode != 0
    assert re.search(r"error: sweep/0-\S+: d_model \(16\) must be a multiple of n_heads \(3\)", done.stderr)
    assert len(list(tmp_path.glob("sweep/*/metrics.json"))) == 2


@pytest.mark.slow
def test_optuna_makes_the_validation_loss_small(tmp_path):
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    own = ["hydra/sweeper=optuna", "hydra.sweeper.n_trials=3", "hydra.sweeper.n_jobs=1", "hydra.sweep.dir=sweep"]
    done = command("train", "-m", *own, *TOY, "optim.lr=tag(log,interval(1e-4,1e-1))", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    losses = [json.loads(path.read_text())["final"]["val/loss"] for path in tmp_path.glob("sweep/*/metrics.json")]
    best = yaml.safe_load((tmp_path / "sweep" / "optimization_results.yaml").read_text(encoding="utf-8"))
    assert len(losses) == 3
    assert best["best_value"] == min(losses)
