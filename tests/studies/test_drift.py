"""The probe of settled patterns, on a model that does not learn and on one that does."""

import pytest
import yaml

from minitf.config import config_dir
from minitf.studies.probes.drift import drift

STUDY = yaml.safe_load((config_dir() / "study" / "settled.yaml").read_text(encoding="utf-8"))
FEW = ["trainer.max_steps=4", "schedule.warmup_steps=0", "data.n_val=64", "data.batch_size=64"]


def test_patterns_of_a_model_that_does_not_learn_never_change():
    found = drift(0, STUDY["run"]["overrides"], parts=2, more=[*FEW, "optim.lr=1e-12", "optim.weight_decay=0"])
    assert found["early"] == pytest.approx(0, abs=1e-6)
    assert found["late"] == pytest.approx(0, abs=1e-6)
    assert found["same_number"] >= found["matched"] - 1e-9 > 0.05  # two draws of weights


def test_patterns_of_a_model_that_learns_do():
    found = drift(0, STUDY["run"]["overrides"], parts=2, more=FEW)
    assert 0.02 < found["early"] <= 1
