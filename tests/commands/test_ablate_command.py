"""The command of studies: tables, folders, exit codes and one message for a mistake."""

import json
import sys

import pytest
import yaml
from runs import command, train_here

from minitf.commands.ablate import main

BASE = (
    "data=repeat data.seq_len=16 data.task.least=3 data.task.most=5 data.n_val=32 data.batch_size=4 task=answer "
    "model=gpt_tiny model/ffn=none model.d_model=16 model.n_layers=1 model.attention.n_heads=2 optim=adamw "
    "schedule.warmup_steps=0 trainer.max_steps=3 trainer.precision=32-true"
)
STUDY = {
    "question": "Does a position matter?",
    "claim": "It does not.",
    "source": "nobody",
    "metric": "accuracy",
    "base": BASE.split(),
    "cells": {"rope": ["model/position=rope"], "none, at all": ["model/position=none"]},
    "seeds": 3,
    "expect": [{"same": ["rope", "none, at all"], "within": 1.0}],
}


@pytest.fixture
def ablate(monkeypatch, capsys, tmp_path):
    """Run the command here, in an empty folder: exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["minitf-ablate", *arguments])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return run


def own_study(folder, name="mine", **other):
    """A file of the user's own; returns what is typed for it."""
    path = folder / "own" / "study" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({**STUDY, **other}, sort_keys=False), encoding="utf-8")
    return ["--config-dir", str(path.parents[1]), f"study={name}"]


def test_a_study_of_ones_own_is_run_kept_and_judged(ablate, tmp_path):
    typed = own_study(tmp_path)
    code, out, err = ablate(*typed, "jobs=1")
    assert code == 0, err
    assert "Verdict: supported" in out
    assert "[6/6] mine none, at all s2" in err
    folder = tmp_path / "runs" / "studies" / "mine"
    assert len(list(folder.rglob("s?.json"))) == 6
    assert (folder / "verdicts.html").stat().st_size > 1000
    assert json.loads((folder / "verdicts.json").read_text(encoding="utf-8"))[0]["verdict"] == "supported"

    again = ablate(*typed, "jobs=1")
    assert (again[0], again[2]) == (0, ""), "nothing is left to do"
    assert again[1] == out

    code, out, err = ablate(*typed, "jobs=1", "cells=[rope]", "seeds=1")
    assert (code, err) == (0, "")
    assert "none, at all" not in out.split("Verdict")[0]
    assert "not judged (only 1 of 2 cells" in out
    assert json.loads((folder / "verdicts.json").read_text(encoding="utf-8"))[0]["verdict"] == "supported"
    assert (folder.parent / "mine-some-cells" / "verdicts.html").is_file()

    code, out, err = ablate(*typed, "jobs=1", "smoke=true", "cells=[rope]")
    assert code == 0, err
    assert "a trial" in out
    assert len(list((tmp_path / "runs" / "studies-smoke").rglob("s?.json"))) == 1
    assert len(list(folder.rglob("s?.json"))) == 6


@pytest.mark.slow
def test_cells_that_were_typed(ablate, tmp_path):
    over = "model/position=rope,none model.n_layers=1,0"
    code, out, err = ablate(f"base={BASE}", f"over={over}", "seeds=1", "jobs=1", "folder=kept")
    assert code == 1
    assert "error: 2 cells failed" in err
    assert "n_layers must be a whole number of at least 1" in err
    for cell in ("rope, n_layers=1", "none, n_layers=1", "rope, n_layers=0"):
        assert cell in out
    assert "accuracy (decides)" in out
    assert "Answer: incomplete" in out
    assert len(list((tmp_path / "kept").rglob("s0.json"))) == 4


def test_a_study_in_another_setting_is_one_of_its_own(ablate, tmp_path):
    figures = {"rope": {"accuracy": [0.0, 1.0]}}
    why = [{"cells": ["rope"], "metrics": ["accuracy"], "why": "no reason for this setting"}]
    typed = own_study(tmp_path, seeds=1, figures=figures, differences=why)
    code, plain, err = ablate(*typed, "jobs=1")
    assert code == 0, err
    code, out, err = ablate(*typed, "jobs=1", "with=model/norm=rms optim.decay_vectors=true")
    assert code == 0, err
    assert "Study mine with model/norm=rms optim.decay_vectors=true" in out
    assert "'with=model/norm=rms optim.decay_vectors=true'" in out, "the command that does it again"
    assert "0 .. 1 inside" in out
    folder = tmp_path / "runs" / "studies"
    kept = {path.name: json.loads((path / "rope" / "s0.json").read_text()) for path in folder.iterdir()}
    assert len(kept) == 2
    norms = {name: of["key"]["config"]["model"]["norm"]["_target_"] for name, of in kept.items()}
    assert norms.pop("mine").endswith("LayerNorm")
    assert norms.popitem()[1].endswith("RMSNorm")
    code, again, err = ablate(*typed, "jobs=1", "with=model/norm=rms optim.decay_vectors=true")
    assert "[1/" not in err, "what is finished is not done again"
    assert again == out
    assert ablate(*typed, "jobs=1")[1] == plain
    code, out, err = ablate(*typed, "jobs=1", "cells=[rope]", "with=model/position=alibi")
    assert code == 0, err
    assert "Study mine with model/position=alibi" in out, "one cell alone may be set anew"


def test_a_study_file_that_is_no_yaml(ablate, tmp_path):
    flags = own_study(tmp_path)
    (tmp_path / "own" / "study" / "mine.yaml").write_text("question: Is it: so?\n", encoding="utf-8")
    code, _, err = ablate(*flags)
    assert code == 2
    assert err.startswith("error: ")
    assert "mine.yaml, line 1, column 16: this is no YAML" in err


def test_names_that_yaml_reads_as_no_text(ablate, tmp_path):
    more = {"expect": [], "cells": {}, "factors": {"heads": {1: [], 2: []}, "p": {3: []}}}
    code, _, err = ablate(*own_study(tmp_path, **more), "cells=[nope]")
    assert (code, "there are '1, 3', '2, 3'" in err) == (2, True), err
    for name, says in ((True, "cells has the name True"), (None, "a name below 'cells' in a YAML file is null")):
        code, _, err = ablate(*own_study(tmp_path, f"named-{name}", expect=[], cells={name: []}))
        assert (code, says in err, "put" in err) == (2, True, True), err


@pytest.mark.slow
def test_a_sweep_runs_several_studies_and_names_what_failed(ablate, tmp_path):
    own_study(tmp_path, "first", seeds=1)
    flags = own_study(tmp_path, "second", seeds=1, cells={"bad": ["model.attention.n_heads=3"]}, expect=[])[:2]
    code, out, err = ablate(*flags, "-m", "study=second,first", "jobs=1")
    assert code == 1
    assert "error: 1 of 2 jobs failed" in err
    assert "bad s0: d_model (16) must be a multiple of n_heads (3)" in err
    assert "Study first" in out
    assert len(list((tmp_path / "runs" / "studies").rglob("s0.json"))) == 3


@pytest.mark.slow
def test_runs_of_a_sweep_give_the_same_table(ablate, tmp_path, monkeypatch):
    sweep = tmp_path / "sweep"
    for i, (layers, seed) in enumerate([(1, 0), (1, 1), (2, 0), (2, 1)]):
        own = [f"model.n_layers={layers}", f"seed={seed}"]
        train_here(sweep / f"{i}-run", [*(o for o in BASE.split() if "n_layers" not in o), *own])
    (sweep / "3-run" / "metrics.json").unlink()
    code, out, err = ablate(f"runs={sweep}")
    assert code == 1
    assert "sweep, n_layers=2 s1: 3-run is finished: it has no metrics.json" in err
    table = out.split("Comparisons")[0]
    assert "accuracy (decides)" in table
    row = next(line for line in table.split("\n") if line.strip().startswith("n_layers=1"))
    values = [json.loads((sweep / f"{i}-run" / "metrics.json").read_text())["final"]["val/accuracy"] for i in (0, 1)]
    assert [float(x) for x in row.split()[1:3]] == pytest.approx(values, abs=1e-3)
    assert "failed" in next(line for line in table.split("\n") if line.strip().startswith("n_layers=2"))


MISTAKES = [
    ([], "what is to be decided"),
    (["study=nosuch"], "study=nosuch: there is no such option; study can be additive"),
    (["study=scale"], "nearest: scale_at_init, scale_longer"),
    (["study=all", "over=seed=1,2"], "study=all and over=... do not go together"),
    (["study=all", "-m"], "study=all is no sweep"),
    (["base=seed=1"], "base=... goes with over=..."),
    (["over="], "over= is empty"),
    (["over=rope,none"], "'rope,none' is neither key=value nor group=option"),
    (["over='seed=1"], "cannot be read: No closing quotation"),
    (["over=model.n_layers=1,2", "jobs=0"], "jobs (0) must be a whole number of at least 1"),
    (["over=model.n_layers=1,2", "seeds=two"], "seeds ('two') must be a whole number"),
    (["over=model.n_layers=1,2", "cells=[three]"], "has no cell 'three'; there are 'n_layers=1', 'n_layers=2'"),
    (["study=induction", "study=sink"], "study=induction and study=sink: one study at a time"),
    (["over=seed=1,2"], "seed is no setting of a cell"),
    (["base=seed=1", "over=model.n_layers=1,2"], "seed is no setting of a cell"),
    (["over=model.n_layers=1,2 model.n_layers=3"], "over= has model.n_layers twice"),
    (["over=model/position=rope,rope"], "gives the same cell twice"),
    (["over=optim.lr=<b>,1e-3"], "cannot be read as it is: if it is a text, quote it"),
    (["over=model.n_layrs=1,2"], "'model.n_layrs' is no key or group of 'train'; nearest: model.n_layers"),
    (["over=model/position=rope,nope"], "model/position=nope: there is no such option; model/position can be alibi"),
    (["base=data=nope", "over=model.n_layers=1,2"], "data=nope"),
    (["over=model.n_layers=1,2", "folder="], "folder= is empty"),
    (["study=hard_lookup", "folder=/dev/null/deep"], "Not a directory: /dev/null"),
    (["study=all", "metric=loss"], "the study says which metric decides"),
    (["runs=."], "holds no run folders"),
    (["seds=3"], "nearest: seeds"),
    (["study=decay_diversity", "with="], "with= is empty"),
    (["study=decay_diversity", "with=rms"], "'rms' is neither key=value nor group=option"),
    (
        ["study=decay_diversity", "with=model/norm=nope"],
        "with, in the cell 'healthy': model/norm=nope: there is no such option",
    ),
    (["study=decay_diversity", "with=optim.momentum=0.9"], "'optim.momentum' is no key or group of 'train'"),
    (["study=order", "with=model.position.factor=2"], "with, in the cell 'encoder, no code': 'model.position.factor'"),
    (["study=decay_diversity", "with=seed=4"], "seed is no setting of a cell"),
    (
        ["study=decay_diversity", "with=optim.weight_decay=0.1"],
        "which is what the cells of study=decay_diversity differ",
    ),
    (["study=decay_diversity", "with=optim.lr=1e-3 optim.lr=2e-3"], "with= has optim.lr twice"),
    (["study=decay_diversity", "with=~optim.lr"], "it can take nothing out, as ~optim.lr would"),
    (
        ["study=decay_diversity", "with=optim.lr=1e-3,1e-2"],
        "with= is one setting: optim.lr=1e-3,1e-2 has several values",
    ),
    (["study=order", "with=model.position.base=9"], "'model.position.base' is no key"),
    (["study=order", "with=model.position=null"], "with= sets model.position, which is what the cells of study=order"),
    (
        ["study=order", "with=model.position._target_=a.B"],
        "with= sets model.position._target_, which is what the cells",
    ),
    (["study=scale_at_init", "with=n_keyz=3"], "'n_keyz' is no argument of minitf.studies.probes.softmax."),
    (["study=scale_at_init", "with=~scaled"], "it can take nothing out"),
    (["study=order", "with=model/norm=rms", "-m"], "with is no sweep: leave -m away"),
    (["study=all", "with=model/norm=rms"], "with=... is a setting for one study; with study=all"),
    (["over=model.n_layers=1,2", "with=model/norm=rms"], "with=... is a setting for one study; with over=..."),
    (["study=decay_diversity,sink", "-m", "with=model/norm=rms"], "with is no sweep"),
]


@pytest.mark.parametrize(("typed", "message"), MISTAKES, ids=lambda v: " ".join(v) if isinstance(v, list) else "")
def test_mistakes_have_one_message(ablate, typed, message, tmp_path):
    code, out, err = ablate(*typed)
    assert code == 2, err
    assert message in err
    assert err.startswith("error: ")
    assert out == ""
    assert not list(tmp_path.iterdir())


def test_a_study_that_speaks_of_what_is_not_measured(ablate, tmp_path):
    typed = own_study(tmp_path, seeds=1, expect=[{"cell": "rope", "metric": "acuracy", "at_least": 0}])
    code, _, err = ablate(*typed, "jobs=1")
    assert code == 2
    assert "'acuracy'; there are accuracy, exact, loss" in err
    code, _, err = ablate(*own_study(tmp_path, "odd", quesion="?"))
    assert code == 2
    assert "quesion is not known" in err


@pytest.mark.slow
def test_processes_of_the_installed_command(tmp_path):
    typed = own_study(tmp_path, seeds=2)
    done = command("ablate", *typed, "jobs=2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "[4/4]" in done.stderr
    assert "Traceback" not in done.stderr
