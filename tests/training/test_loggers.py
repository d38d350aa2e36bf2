import importlib.util
import os

import pytest
from lightning.pytorch.callbacks import Callback
from training_stubs import Batches, history, make_task, val_batches

from minitf.errors import ConfigError
from minitf.training import loggers
from minitf.training.trainer import make_trainer


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user without any wandb account or setting."""
    for name in [name for name in os.environ if name.startswith("WANDB_") or name == "NETRC"]:
        monkeypatch.delenv(name)
    for name in ("HOME", "USERPROFILE", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


class LookAtRun(Callback):
    """Note what the wandb run holds at the end of the training, while it is open."""

    def __init__(self, logger):
        self.logger = logger

    def on_train_end(self, trainer, pl_module):
        run = self.logger.experiment
        self.id, self.seed, self.name, self.step = run.id, run.config["seed"], run.name, run.step
        self.train_loss = run.summary["train/loss"]  # of step 1: wandb keeps the newest step open for more values


@pytest.mark.slow
def test_three_offline_runs_of_one_process_stay_apart(home, tmp_path):
    seen = []
    crashed = loggers.WandbRun(tmp_path / "crashed", {"seed": -1})  # an earlier job that did not end its run
    crashed.log_metrics({"train/loss": 9.0}, step=100)
    for seed in range(3):
        folder = tmp_path / f"run{seed}"
        made = loggers.Wandb()(folder, {"seed": seed})
        look = LookAtRun(made[1])
        trainer = make_trainer(folder, made, [look], max_steps=2, val_every=2, log_every=1, accelerator="cpu")
        trainer.fit(make_task(), Batches(2), val_batches())
        seen.append(look)
        assert look.train_loss == pytest.approx(history(folder, "train/loss")[1])
        assert list((folder / "wandb").glob("offline-run-*/*.wandb"))
    crashed.finalize("failed")
    assert len({crashed.version, *(look.id for look in seen)}) == 4
    assert [(look.seed, look.name, look.step) for look in seen] == [(0, "run0", 2), (1, "run1", 2), (2, "run2", 2)]
    assert "WANDB_MODE" not in os.environ  # the next run may be online


def test_a_resumed_run_is_the_same_wandb_run(home, tmp_path):
    ids = []
    for step in (1, 2):
        run = loggers.WandbRun(tmp_path, {"seed": 0})
        run.log_metrics({"train/loss": 1.0}, step=step)
        ids.append(run.version)
        run.finalize("success")
    assert ids[0] == ids[1] != loggers.WandbRun(tmp_path / "another", {}).version


def test_online_without_a_key_fails_at_once(home, tmp_path):
    with pytest.raises(ConfigError, match="needs an API key"):
        loggers.Wandb(online=True)
    assert not (tmp_path / "wandb").exists()


def test_a_key_is_found_where_wandb_keeps_it(home, tmp_path, monkeypatch):
    assert not loggers._has_key()
    (home / ".netrc").write_text("machine api.wandb.ai login user password 0123\n")
    (home / ".netrc").chmod(0o600)
    assert loggers._has_key()
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
    assert not loggers._has_key()
    monkeypatch.setenv("WANDB_API_KEY", "0123")
    assert loggers._has_key()


def test_without_the_package_the_error_names_it(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install wandb"):
        loggers.Wandb()
