"""Cells get the same steps, parameters, FLOPs or seconds."""

import pytest
from toy import BASE, toy

from minitf.config import compose
from minitf.errors import ConfigError
from minitf.studies.budget import flops_per_step
from minitf.studies.cell import run_cell
from minitf.studies.loop import prepare
from minitf.studies.runner import run
from minitf.studies.store import Store

DEEP = {"one": ["model.n_layers=1"], "three": ["model.n_layers=3"]}


def subject(*overrides):
    return prepare(compose("train", [*BASE, "model/position=none", *overrides]))


def test_flops_are_those_of_the_matrix_products():
    n_rows, n_tokens, d_model, vocab = 4, 16, 16, subject().cfg.data.vocab_size
    tokens = n_rows * n_tokens
    projections = 4 * 2 * tokens * d_model * d_model
    scores = 2 * 2 * n_rows * n_tokens * n_tokens * d_model
    head = 2 * tokens * d_model * vocab
    found = {n: flops_per_step(subject(f"model.n_layers={n}")) for n in (1, 2)}
    layer = found[2] - found[1]
    assert layer == 3 * (projections + scores), "a backward pass costs twice a forward pass"
    assert found[1] == pytest.approx(layer + 3 * head, rel=0.1)


def test_flops_of_a_fast_kernel_are_counted_like_its_definition():
    fast, slow = subject(), subject("model.attention.fast=null")
    assert flops_per_step(fast) == flops_per_step(slow)
    assert fast.model.layers[0].attention.fast is not None, "the subject itself is left alone"


def test_budget_of_flops_chooses_the_steps():
    study = toy(budget="flops", cells=DEEP, base=[*BASE, "trainer.max_steps=30"])
    first, other = (run_cell(study, cell, 0) for cell in DEEP)
    ratio = flops_per_step(subject("model.n_layers=1")) / flops_per_step(subject("model.n_layers=3"))
    assert first.n_steps == 30
    assert other.n_steps == round(30 * ratio) < 20


def test_budget_of_parameters_refuses_before_training():
    study = toy(budget="parameters", cells=DEEP)
    with pytest.raises(ConfigError, match=r"'three' has 3,\d+ of them and 'one' has 1,\d+"):
        run_cell(study, "three", 0)
    equal = toy(budget="parameters", cells={"rope": ["model/position=rope"], "none": ["model/position=none"]})
    assert run_cell(equal, "none", 0).n_params == run_cell(equal, "rope", 0).n_params


def test_budget_of_seconds_gives_each_cell_the_time_of_the_first(tmp_path):
    study = toy(budget="seconds", cells=DEEP, base=[*BASE, "trainer.max_steps=150"], seeds=1)
    first, other = run([study], Store(tmp_path), jobs=1, say=lambda line: None)["toy"]
    assert not first.error
    assert not other.error
    assert first.n_steps == 150
    assert other.n_steps < 150
    assert 0.4 * first.trained < other.trained < 1.5 * first.trained
    with pytest.raises(ConfigError, match="must have been trained"):
        run_cell(study, "three", 0)
