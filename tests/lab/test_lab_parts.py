"""The parts of the lab: one override puts a mistake into a run, nobody gets one by accident, and a run tells it again."""

import pytest
import torch
from demos import text_of
from runs import TOY, train_here, write_corpus

from minitf.config import check, compose, config_dir, group_options
from minitf.help import help_text
from minitf.lab.mask_convention import MaskConvention
from minitf.lab.mask_inverted import MaskInverted
from minitf.lab.wrong_axis import WrongAxis
from minitf.positions import NO_TOKEN

NAMES = group_options("bug")


def test_the_mistakes_live_in_the_lab_alone():
    users = {p.parent.name for p in config_dir().rglob("*.yaml") if "minitf.lab" in p.read_text(encoding="utf-8")}
    assert users == {"bug"}


@pytest.mark.parametrize("command", ["train", "demo"])
def test_help_does_not_offer_them(command, monkeypatch):
    monkeypatch.setattr("sys.argv", [command, "--help"])
    text = help_text(command)
    assert not [name for name in NAMES if name in text]


@pytest.mark.parametrize("name", NAMES)
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


def test_a_run_with_a_mistake_is_found_out(tmp_path, monkeypatch):
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))
    corpus = write_corpus(tmp_path / "corpus", 20)
    steps = ["trainer.max_steps=2", "trainer.val_every=2", "schedule.warmup_steps=0"]
    folder = train_here(tmp_path / "run", [*TOY, f"data.source.path={corpus}", *steps, "+bug=wrong_axis"])
    text = " ".join(text_of("demo=doctor", f"run={folder}").split())
    assert "It looks like wrong_axis (minitf/lab/wrong_axis.py): softmax runs over the queries" in text
    assert "Nothing is broken" not in text


def test_a_fresh_model_is_healthy():
    assert "Nothing is broken." in text_of("demo=doctor", "model.n_layers=1", "model.d_model=16")
