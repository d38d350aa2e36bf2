"""Cells are done once, kept with what could change them, and one that fails does not end the others."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from toy import BASE, toy

import minitf.studies.runner as runner
from minitf.errors import ConfigError
from minitf.studies import store as stores
from minitf.studies.cell import run_cell
from minitf.studies.runner import run
from minitf.studies.store import Store, difference, safe_name

HERE = Path(__file__).parent


def probe(name="add", cells=None, **other):
    cells = cells or {"one": ["a=1"], "two": ["a=2"]}
    run = {"_target_": f"probes_here.{name}"}
    return toy(**{"run": run, "base": [], "cells": cells, "metric": "sum", **other})


def quiet(line):
    return None


@pytest.fixture
def counted(monkeypatch):
    done = []
    real = runner.run_cell
    monkeypatch.setattr(runner, "run_cell", lambda *a, **k: done.append(a[1:3]) or real(*a, **k))
    return done


def numbers(results):
    return {(r.cell, r.seed): dict(r.scores) for r in results}


def test_what_is_finished_is_read_and_what_has_changed_is_done_again(tmp_path, counted, monkeypatch):
    store, said = Store(tmp_path), []
    first = run([toy()], store, jobs=1, say=said.append)["toy"]
    assert counted == [("rope", 0), ("rope", 1), ("none, at all", 0), ("none, at all", 1)]
    assert said[0].startswith("4 runs of 6 steps: 2 cells, up to 2 seeds each")
    assert said[1].startswith("[1/4] toy rope s0")
    assert "in all" in said[-1]
    assert all(0 <= r.scores["accuracy"] <= 1 and not r.error for r in first)
    counted.clear()
    assert run([toy()], store, jobs=1, say=said.append)["toy"] == first
    assert not counted

    changed = toy(cells={"rope": ["model/position=rope"], "none, at all": ["model/position=none", "optim.lr=0.01"]})
    said.clear()
    run([changed], store, jobs=1, say=said.append)
    assert counted == [("none, at all", 0), ("none, at all", 1)]
    assert "again none, at all s0, none, at all s1: optim.lr was 0.003, is 0.01" in said[0]

    counted.clear()
    said.clear()
    monkeypatch.setattr(stores, "code_hash", lambda *named, **more: "another")
    run([replace(toy(), seeds=1)], store, jobs=1, say=said.append)
    assert counted == [("rope", 0), ("none, at all", 0)]
    assert "the code has changed" in said[0]


@pytest.mark.parametrize("content", ['{"result": {"cell": ', "no scores"])
def test_a_damaged_file_is_done_again(tmp_path, counted, content):
    store = Store(tmp_path)
    first = run([probe()], store, jobs=1, say=quiet)["toy"]
    path = store.path("toy", "one", 1)
    path.write_text(content.replace("no scores", re.sub('"scores": {[^}]*}', '"scores": {}', path.read_text())))
    counted.clear()
    assert numbers(run([probe()], store, jobs=1, say=quiet)["toy"]) == numbers(first)
    assert counted == [("one", 1)]


def test_probes_get_seed_and_arguments_and_draw_alike(tmp_path):
    results = run([probe(base=["b=10"])], Store(tmp_path), jobs=1, say=quiet)["toy"]
    assert [r.scores["sum"] for r in results] == [11, 12, 12, 13]
    assert results[0].scores["drawn"] == results[2].scores["drawn"] != results[1].scores["drawn"]


@pytest.mark.slow
def test_processes_give_the_same_results_and_survive_one_that_dies(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    here = run([toy()], Store(tmp_path / "one"), jobs=1, say=quiet)["toy"]
    cells = {"good": ["a=1"], "dies": ["a=2"], "fine": ["a=3"]}
    both = [toy(), replace(probe("ends", cells), name="dying", seeds=1)]
    there = run(both, Store(tmp_path / "two"), jobs=2, say=quiet)
    assert numbers(there["toy"]) == numbers(here)
    good, dead, fine = there["dying"]
    assert (good.scores["sum"], fine.scores["sum"]) == (1, 3)
    assert "exit code 7" in dead.error
    assert len(list((tmp_path / "two").rglob("s*.json"))) == 7


def test_a_failed_cell_is_kept_with_its_reason_and_tried_again(tmp_path, counted):
    cells = {"good": ["model/position=rope"], "bad": ["model.attention.n_heads=3"], "unknown": ["model.n_layer=2"]}
    said = []
    results = run([toy(cells=cells, seeds=1)], Store(tmp_path), jobs=1, say=said.append)["toy"]
    assert [bool(r.error) for r in results] == [False, True, True]
    assert "must be a multiple of n_heads (3)" in results[1].error
    assert "n_layer" in results[2].error
    assert said[0].startswith("toy: unknown cannot be composed and is left out: ")
    assert "FAILED" in said[3]
    counted.clear()
    run([toy(cells=cells, seeds=1)], Store(tmp_path), jobs=1, say=said.append)
    assert counted == [("bad", 0)], "what cannot be composed is never begun"
    assert any("it failed before" in line for line in said)


def test_a_run_that_diverged_would_diverge_again(tmp_path, counted):
    wild = {"wild": ["optim.lr=1e30", "trainer.clip_norm=null", "schedule.warmup_steps=0"]}
    for _ in range(2):
        (result,) = run([toy(cells=wild, seeds=1)], Store(tmp_path), jobs=1, say=quiet)["toy"]
        assert "not finite" in result.error
    assert counted == [("wild", 0)]


def test_that_the_deciding_metric_is_not_there_is_told_at_once(tmp_path):
    said = []
    run([probe(metric="difference")], Store(tmp_path), jobs=1, say=said.append)
    notes = [
        i for i, line in enumerate(said) if line.startswith("note: toy one has no difference, which decides; there")
    ]
    assert notes == [2], "behind the first cell"


def test_a_fault_of_a_probe_is_the_error_of_its_cell(tmp_path):
    results = run([probe("broken")], Store(tmp_path), jobs=1, say=quiet)["toy"]
    assert [r.error for r in results] == ["RuntimeError: no luck with 1"] * 2 + ["RuntimeError: no luck with 2"] * 2
    (wrong,) = run([probe(cells={"x": ["c=1"]}, seeds=1)], Store(tmp_path / "x"), jobs=1, say=quiet)["toy"]
    assert "probes_here.add" in wrong.error
    assert "'c'" in wrong.error


def test_measures_at_their_steps_leave_training_alone(tmp_path):
    measures = {
        "end": {"_target_": "probes_here.steps_done"},
        "course": {"_target_": "probes_here.steps_done", "factor": 10, "at": [2, 4, 100]},
    }
    measured = run_cell(toy(measures={"course": measures["course"]}), "rope", 1)
    assert measured.courses == {"steps": [(2, 20.0), (4, 40.0), (6, 60.0)]}
    assert measured.scores["steps"] == 60
    both = run_cell(toy(measures={"end": {**measures["end"], "at": "start"}}), "rope", 1)
    assert (both.scores["start.steps"], both.scores["steps"]) == (0, 6)
    assert both.scores["loss"] == measured.scores["loss"] == run_cell(toy(), "rope", 1).scores["loss"]
    with pytest.raises(ConfigError, match="must give numbers by name"):
        run_cell(toy(measures={"odd": {"_target_": "probes_here.no_numbers"}}), "rope", 0)


def test_of_several_studies_one_that_cannot_run_does_not_end_the_others(tmp_path):
    uneven = replace(
        toy(cells={"short": ["trainer.max_steps=3"], "long": ["trainer.max_steps=6"]}), name="uneven", seeds=1
    )
    with pytest.raises(ConfigError, match="'long' trains for 6 steps"):
        run([uneven], Store(tmp_path), jobs=1, say=quiet)
    results = run([uneven, probe()], Store(tmp_path), jobs=1, say=quiet)
    assert all("'long' trains for 6 steps" in r.error for r in results["uneven"])
    assert not any(r.error for r in results["toy"])


def test_a_measure_of_ones_own_that_has_changed_is_taken_again(tmp_path, counted, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for n in (1, 2):
        (tmp_path / "own_probe.py").write_text(f"def give(seed, a):\n    return {{'sum': {n}}}\n", encoding="utf-8")
        said = []
        study = toy(run={"_target_": "own_probe.give"}, base=[], cells={"x": ["a=1"]}, metric="sum", seeds=1)
        run([study], Store(tmp_path / "kept"), jobs=1, say=said.append)
    assert counted == [("x", 0)] * 2
    assert "the code has changed" in said[0]


def test_keys_tell_in_a_line_what_has_changed():
    old = {"torch": "2.12", "code": "a", "config": {"optim": {"lr": 1.0, "x": [1, 2]}}}
    assert difference(old, old) == ""
    assert difference(old, {**old, "torch": "2.13"}) == 'torch was "2.12", is "2.13"'
    assert difference(old, {**old, "config": {"optim": {"lr": 2.0, "x": [1]}}, "code": "b"}).endswith("and 1 more")


def test_names_of_cells_become_names_of_folders():
    assert safe_name("rope") == "rope"
    names = [safe_name(name) for name in ("d_k 16, scaled", "d_k 16 scaled", "../..", "a/b", "x" * 300, "", "猫")]
    assert len(set(names)) == len(names)
    assert all(len(name) < 80 and not set(name) & set("/\\ .,:*") for name in names)


def test_time_left_is_guessed_from_the_same_study():
    from minitf.studies.progress import Progress, clock

    lines = []
    progress = Progress({"slow": 2, "quick": 4}, 2, lines.append)
    progress.done("slow", "slow a", 100.0)
    progress.done("quick", "quick a", 2.0)
    assert progress.left() == (100 + 3 * 2) / 2
    assert clock(65) == "1:05"
    assert clock(3725) == "1:02:05"


SCRIPT = """
import sys
sys.path[:0] = {paths}
from toy import toy
from minitf.studies.runner import run
from minitf.studies.store import Store
if __name__ == "__main__":
    run([toy(seeds=3)], Store(sys.argv[1]), jobs=int(sys.argv[2]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "number"), [(1, signal.SIGKILL), (2, signal.SIGTERM)])
def test_a_killed_study_goes_on_and_ends_like_an_unbroken_one(jobs, number, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(paths=[str(HERE), str(HERE.parents[1])]), encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, script, tmp_path / "kept", str(jobs)], stdout=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 100
    while len(list(tmp_path.rglob("s?.json"))) < 2:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    process.communicate(timeout=60)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("s?.json")}
    assert 2 <= len(before) < 6
    study = toy(seeds=3)
    broken = run([study], Store(tmp_path / "kept"), jobs=1, say=quiet)["toy"]
    whole = run([study], Store(tmp_path / "whole"), jobs=1, say=quiet)["toy"]
    assert numbers(broken) == numbers(whole)
    assert [(r.cell, r.seed) for r in broken] == [(r.cell, r.seed) for r in whole]
    assert all(path.stat().st_mtime_ns == at for path, at in before.items()), "what was finished is not done again"


def test_result_files_say_what_made_them(tmp_path):
    run([toy(seeds=1)], Store(tmp_path), jobs=1, say=quiet)
    kept = json.loads(Store(tmp_path).path("toy", "none, at all", 0).read_text(encoding="utf-8"))
    assert kept["key"]["config"]["model"]["position"]["_target_"].endswith("Position")
    assert {"torch", "code", "measures"} <= kept["key"].keys()
    assert BASE[-1] == "trainer.precision=32-true"
    assert kept["key"]["config"]["trainer"]["precision"] == "32-true"
