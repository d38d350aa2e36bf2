"""The parts of the lab: one override puts a mistake into a run, nobody gets one by accident."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from parts import some_by_default

from minitf.command_line import Job
from minitf.commands.demo import show
from minitf.commands.train import train
from minitf.config import build, check, compose, config_dir, group_options
from minitf.demo.text import WIDTH
from minitf.help import help_text
from minitf.lab.mask_convention import MaskConvention
from minitf.lab.mask_inverted import MaskInverted
from minitf.lab.wrong_axis import WrongAxis
from minitf.positions import NO_TOKEN

SCRIPT = Path(__file__).parents[2] / "scripts" / "demo.py"
NAMES = group_options("bug")


def test_the_mistakes_live_in_the_lab_alone():
    users = {p.parent.name for p in config_dir().rglob("*.yaml") if "minitf.lab" in p.read_text(encoding="utf-8")}
    assert users == {"bug"}


@pytest.mark.parametrize("command", ["train", "demo"])
def test_help_does_not_offer_them(command, monkeypatch):
    monkeypatch.setattr("sys.argv", [command, "--help"])
    text = help_text(command)
    assert not [name for name in NAMES if name in text]


@pytest.mark.parametrize("name", some_by_default(NAMES, 3))
def test_one_override_passes_the_checks_of_a_command_line(name):
    cfg = compose("train", [f"+bug={name}"])
    check(cfg, "train", [f"+bug={name}"])
    assert "minitf.lab" in str(cfg.model)


def test_masks_show_what_they_should_hide():
    pos = torch.tensor([0, 1, 2, NO_TOKEN])
    q, k = pos[:, None], pos[None]
    assert MaskInverted().visible(q, k)[:3].int().tolist() == [[1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 1, 0]]
    assert MaskConvention().visible(q, k)[:3].int().tolist() == [[0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1]]


def test_the_queries_compete():
    visible = torch.ones(4, 4, dtype=torch.bool).tril()
    weights = WrongAxis(n_heads=1)(torch.randn(1, 1, 4, 4), visible)
    assert torch.allclose(weights.sum(-2), torch.ones(4))
    assert not weights[..., ~visible].any()
    nothing = WrongAxis(n_heads=1)(torch.randn(1, 1, 4, 4), torch.zeros(4, 4, dtype=torch.bool))
    assert not nothing.any()


def text_of(*overrides):
    cfg = compose("demo", ["demo=doctor", *overrides])
    check(cfg, "demo", ["demo=doctor", *overrides])
    return " ".join(build(cfg.demo)(config=cfg).split())


def test_a_run_with_a_mistake_is_found_out(tmp_path, monkeypatch):
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))
    overrides = ["+experiment=induction", "+bug=wrong_axis", "trainer.max_steps=2", "data.n_val=8"]
    cfg = compose("train", overrides)
    train(cfg, Job(folder=tmp_path, choices={"logger": "csv"}, overrides=overrides, sweep=None), False)
    text = text_of(f"run={tmp_path}")
    assert f"the run {tmp_path}" in text
    assert "It looks like wrong_axis (minitf/lab/wrong_axis.py): softmax runs over the queries" in text
    assert "None of these laws is broken" not in text


@pytest.mark.parametrize(
    ("overrides", "code"),
    [(["+bug=mask_inverted"], 1), (["model/mask=causal_closed_diagonal"], 0), (["model=luong"], 0)],
)
def test_the_exit_status_tells_of_broken_laws_alone(overrides, code, capsys):
    cfg = compose("demo", ["demo=doctor", "model.d_model=16", *overrides])
    job = Job(folder=Path(), choices={"demo": "doctor"}, overrides=[], sweep=None)
    try:
        show(cfg, job)
        ended = 0
    except SystemExit as end:
        ended = end.code
    assert ended == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].endswith("of the mistakes of the lab.")
    assert max(map(len, lines)) <= WIDTH


@pytest.mark.slow
def test_the_command_ends_with_that_status(tmp_path):
    call = [sys.executable, str(SCRIPT), "demo=doctor", "model.d_model=16", "+bug=mask_inverted"]
    env = os.environ | {"PYTHONPATH": str(SCRIPT.parents[1])}
    done = subprocess.run(call, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "It looks like mask_inverted" in done.stdout
    assert not done.stderr


def test_what_is_not_probed_is_told():
    text = text_of("model=bahdanau", "model.d_model=16")
    assert "Not given queries and keys of our own: attention" in text
    assert 'Not asked there: "a token reads itself", "scores are divided by the root of d"' in text
    assert "Not given queries" not in text_of("model.d_model=16")


def test_a_fresh_model_is_healthy():
    assert "None of these laws is broken." in text_of("model.n_layers=1", "model.d_model=16")


def test_a_missing_scale_that_is_not_felt_is_told():
    text = text_of("model.n_layers=1", "model.d_model=16", "+bug=no_scale")
    assert "None of these laws is broken." in text
    assert "If that is no_scale (minitf/lab/no_scale.py), it is not felt" in text
