"""Run folders as cells: what they say, and which file is named where one is damaged."""

import json
import re

import pytest

from minitf.errors import ConfigError
from minitf.studies.finished_runs import read_runs

METRICS = {"final": {"val/loss": 2.0, "train/loss": 1.0}, "n_params": 3, "steps": 4, "train_seconds": 5.0}


def write(folder, name, content):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.fixture
def sweep(tmp_path):
    """Two cells with two seeds each; the last run is not finished."""
    for i, (layers, seed) in enumerate([(1, 0), (1, 1), (2, 0), (2, 1)]):
        run = tmp_path / "sweep" / f"{i}-run"
        overrides = ["data=repeat", f"model.n_layers={layers}", f"+seed={seed}"]
        write(run, "config.yaml", "")
        write(run, "record.json", {"overrides": overrides})
        write(run, "metrics.json", METRICS)
    (run / "metrics.json").unlink()
    write(run, "status.json", {"status": "interrupted"})
    return tmp_path / "sweep"


def test_runs_are_cells_with_seeds(sweep):
    study, results = read_runs(sweep, None)
    assert study.cells == {"n_layers=1": ["model.n_layers=1"], "n_layers=2": ["model.n_layers=2"]}
    assert (study.base, study.seeds, study.metric) == (["data=repeat"], 2, "loss")
    assert [(r.cell, r.seed, dict(r.scores)) for r in results[:2]] == [("n_layers=1", s, {"loss": 2.0}) for s in (0, 1)]
    assert results[0].n_steps == 4
    assert results[3].error == "3-run is interrupted: it has no metrics.json"


def test_the_seed_of_a_run_is_the_one_it_had(sweep):
    """An experiment can set it, too, and then no override names it."""
    run = sweep / "0-run"
    write(run, "record.json", {"overrides": ["data=repeat", "model.n_layers=1"]})
    write(run, "metrics.json", {**METRICS, "seed": 7})
    assert sorted(r.seed for r in read_runs(sweep, None)[1] if r.cell == "n_layers=1") == [1, 7]


DAMAGED = [
    ("record.json", '{"overrides": ["se', "Unterminated string"),
    ("record.json", [1], "it must hold a mapping, not [1]"),
    ("record.json", {"overrides": None}, "overrides must be a list of texts, not None"),
    ("record.json", {"overrides": [3]}, "overrides must be a list of texts, not [3]"),
    ("record.json", {"overrides": ["seed=abc"]}, "seed=abc among its overrides is no whole number"),
    ("metrics.json", "", "Expecting value"),
    ("metrics.json", [], "it must hold a mapping, not []"),
    ("metrics.json", {**METRICS, "final": None}, "there are no scores"),
    ("metrics.json", {key: METRICS[key] for key in METRICS if key != "final"}, "there are no scores"),
    ("metrics.json", {**METRICS, "final": {"train/loss": 1.0}}, "there are no scores"),
    ("metrics.json", {**METRICS, "final": {"val/loss": None}}, "the score loss must be a number, not None"),
    ("metrics.json", {**METRICS, "train_seconds": "5"}, "seconds must be a number of at least 0, not '5'"),
    ("metrics.json", {**METRICS, "steps": None}, "n_steps must be a whole number of at least 0, not None"),
    ("metrics.json", {**METRICS, "seed": None}, "seed must be a whole number, not None"),
    ("status.json", [], "it must hold a mapping, not []"),
]


@pytest.mark.parametrize(("name", "content", "why"), DAMAGED)
def test_a_damaged_file_is_named(sweep, name, content, why):
    run = sweep / ("3-run" if name == "status.json" else "1-run")
    write(run, name, content)
    with pytest.raises(ConfigError, match=re.escape(f"{run / name} is missing or damaged ({why}")):
        read_runs(sweep, None)
