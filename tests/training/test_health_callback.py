"""Watching the health of a run changes none of its bits, speaks once, and goes on where the run does."""

import functools

import numpy as np
import parts
import pytest
import torch
from training_stubs import fit, history

from minitf.config import build, compose
from minitf.data.windows import TrainStream, TrainWindows, ValBatches
from minitf.training.callbacks import default_callbacks
from minitf.training.checkpoint import find_checkpoint, read_checkpoint
from minitf.training.health import Health
from minitf.training.metrics import MetricsCsv, read_metrics
from minitf.training.objective.causal_lm import CausalLM
from minitf.training.optim import adamw
from minitf.training.saving import RunCheckpoint
from minitf.training.schedule import constant
from minitf.training.stop import StopSignals
from minitf.training.task import Task

STEPS, ROWS, LENGTH, VOCAB = 8, 8, 12, 50


def train(folder, *overrides, every=None, steps=STEPS, start=0, lr=0.003, **settings):
    """Train a small decoder with dropout, watched every so many steps."""
    torch.manual_seed(0)
    model = build(parts.node("gpt_tiny", "model.attention.n_heads=2", "model.dropout=0.1", *overrides))
    tokens = np.random.default_rng(0).integers(VOCAB, size=500).astype(np.uint16)
    stream = TrainStream(TrainWindows(tokens, LENGTH, ROWS, seed=0), settings.pop("planned", steps), start, 2, 0, 1)
    task = Task(model, CausalLM(), functools.partial(adamw, lr=lr), constant, seed=0, log_every=1)
    watch = [] if every is None else [Health(every, rows=3)]
    if "ckpt_path" in settings:
        MetricsCsv(folder).cut(start)
    saver = RunCheckpoint(folder, {"seed": 0})
    settings = {"val_every": 4, "accumulate": 2, "callbacks": [*watch, saver], "checkpoint": False, **settings}
    fit(task, folder, stream, steps, val=ValBatches(tokens, LENGTH, ROWS), **settings)
    return task


def rows_of(folder, prefix=""):
    rows = [{k: v for k, v in row.items() if k != "train/tokens_per_s"} for row in read_metrics(folder)]
    kept = [{k: v for k, v in row.items() if k == "step" or k.startswith(prefix)} for row in rows]
    return [row for row in kept if len(row) > 1]


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_training_is_the_same_to_the_bit(tmp_path, monkeypatch, compiled):
    torch._dynamo.reset()
    # the graphs are the same with any backend, and this one needs no compiler
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    plain = train(tmp_path / "plain", compile=compiled)
    state = torch.get_rng_state()
    watched = train(tmp_path / "watched", every=1, compile=compiled)
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in plain.model.state_dict().items():
        assert torch.equal(value, watched.model.state_dict()[name]), name
    assert rows_of(tmp_path / "plain", "train/") == rows_of(tmp_path / "watched", "train/")
    assert rows_of(tmp_path / "plain", "val/") == rows_of(tmp_path / "watched", "val/")
    ends = [read_checkpoint(find_checkpoint(tmp_path / name, "last")) for name in ("plain", "watched")]
    assert str(ends[0]["optimizer_states"]) == str(ends[1]["optimizer_states"])


def test_values_lie_among_the_metrics_at_the_interval_and_the_end(tmp_path):
    train(tmp_path, every=3)
    for metric in ("relative_residual", "token_cosine", "effective_rank", "max_logit", "median_jacobian", "entropy"):
        assert list(history(tmp_path, f"health/{metric}.1")) == [0, 3, 6, 8], metric
    norms = history(tmp_path, "health/gradient_w_v.0")
    assert list(norms) == [3, 6, 8], "there is no gradient before the first step"
    assert min(norms.values()) > 0


def test_gradients_are_those_of_the_whole_step_before_clipping(tmp_path):
    task = train(tmp_path, every=1, steps=1, clip_norm=1e-6, val_every=1)
    total = history(tmp_path, "train/grad_norm")[1]
    names = {f"gradient_{name}" for name in ("w_q", "w_k", "w_v", "w_o")}
    (row,) = (row for row in rows_of(tmp_path, "health/gradient") if row["step"] == 1)
    norms = [value for key, value in row.items() if key.split("/")[-1].split(".")[0] in names]
    assert len(norms) == 8
    assert 0.05 * total < max(norms) < total
    assert task.grad_norm == pytest.approx(total)


def test_a_run_in_two_parts_says_the_same_as_one(tmp_path, capsys):
    bare = ["model.layer.attention_residual=0", "model.layer.ffn_residual=0"]
    collapsed = ["model.n_layers=6", "model/init=unit_variance", "model/mask=full", *bare]
    train(tmp_path / "one", *collapsed, every=2)
    whole = capsys.readouterr().out
    train(tmp_path / "two", *collapsed, every=2, steps=4, planned=STEPS)
    last = find_checkpoint(tmp_path / "two", "last")
    train(tmp_path / "two", *collapsed, every=2, start=4, ckpt_path=last)
    assert rows_of(tmp_path / "one") == rows_of(tmp_path / "two")
    assert capsys.readouterr().out == whole
    lines = [line for line in whole.splitlines() if "layer 5" in line]
    assert lines[0].startswith("step 0: layer 5: all tokens look alike: relative residual ")
    assert sum("look alike" in line for line in lines) == 1, "once"


def test_a_checkpoint_of_a_watched_run_holds_plain_values(tmp_path):
    train(tmp_path, every=2)
    saved = read_checkpoint(find_checkpoint(tmp_path, "last"))
    assert "Health" in saved["callbacks"]


def test_the_option_adds_it_to_the_usual_callbacks(tmp_path):
    made = build(compose("train", ["callbacks=health"]).callbacks)(run_dir=tmp_path, config={}, stop=StopSignals())
    assert [type(c).__name__ for c in made][1:] == ["Health", "RunCheckpoint"]
    made = default_callbacks(tmp_path, {}, StopSignals())
    assert len(made) == 2
