"""The short loop is the Trainer's to the bit; with draws by name, models of one seed start alike."""

import time

import pytest
import torch
from toy import BASE

from minitf.blocks.init import drawn_by_name
from minitf.blocks.init.gpt2 import Gpt2
from minitf.command_line import Job
from minitf.commands.train import train as train_command
from minitf.config import build, check, compose
from minitf.errors import ConfigError
from minitf.runs import load_run
from minitf.studies.loop import prepare, train, validate
from minitf.training.guard import Diverged
from minitf.training.metrics import read_metrics

SEQ2SEQ = "data=reverse data.n_val=32 data.batch_size=4 task=seq2seq model=encdec_tiny model.d_model=32".split()
SEQ2SEQ += ["optim=adamw", "trainer.max_steps=5", "trainer.precision=32-true", "schedule.warmup_steps=2"]


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param([*BASE, "model.dropout=0.1", "seed=3"], id="adamw"),
        pytest.param([*BASE, "optim=muon"], id="muon", marks=pytest.mark.slow),
        pytest.param([*SEQ2SEQ, "model.dropout=0.1"], id="seq2seq"),
    ],
)
def test_loop_equals_the_train_command_to_the_bit(overrides, tmp_path, capsys):
    cfg = compose("train", overrides)
    check(cfg, "train", overrides)
    (tmp_path / "run").mkdir()
    train_command(cfg, Job(tmp_path / "run", {"logger": "csv"}, overrides, None))
    trained, _, _ = load_run(tmp_path / "run", "last")

    subject = prepare(compose("train", overrides))
    before = {name: tensor.clone() for name, tensor in subject.model.state_dict().items()}
    train(subject)
    own = subject.model.state_dict()
    assert own.keys() == trained.state_dict().keys()
    for name, tensor in trained.state_dict().items():
        assert torch.equal(own[name], tensor), name
    assert any(not torch.equal(own[name], before[name]) for name in own)
    last = read_metrics(tmp_path / "run")[-1]
    for name, value in validate(subject).items():
        assert value == last[f"val/{name}"], name


def model_of(*overrides, seed=0, paired=True):
    return prepare(compose("train", [*BASE, *overrides, f"seed={seed}"]), paired=paired).model.state_dict()


def same(one, other):
    return {name for name in one.keys() & other.keys() if torch.equal(one[name], other[name])}


def test_cells_start_alike_where_they_have_the_same_parts():
    matrices = {"embedding.weight", "layers.0.attention.projection.w_q.weight"}
    base = model_of("model/position=rope")
    assert any(name.startswith("position") for name in model_of("model/position=learned").keys() - base.keys())
    for overrides in (
        ["model/position=learned"],
        ["model.n_layers=3"],
        ["model.tie_embeddings=false"],
        ["model/ffn=gelu"],
    ):
        assert matrices <= same(base, model_of("model/position=rope", *overrides)), overrides
    assert not same(base, model_of("model/position=rope", seed=1)) & matrices
    plain = [model_of(f"model/position={p}", paired=False) for p in ("rope", "learned")]
    assert not same(*plain) & matrices, "draws in a row differ: this is what drawing by name is for"


def test_another_spread_is_the_same_draw_scaled():
    name = "layers.0.attention.projection.w_q.weight"
    one, other = model_of("model.init.std=0.02"), model_of("model.init.std=0.06")
    torch.testing.assert_close(other[name], 3 * one[name])
    deep = model_of("model.init.std=0.02", "model.n_layers=4")
    output = "layers.0.attention.projection.w_o.weight"
    torch.testing.assert_close(deep[output], one[output] / 2)
    gain = model_of("model/init=gain", "model.init.factor=2")
    torch.testing.assert_close(gain[name], 2 * model_of()[name])


@pytest.mark.parametrize("rule", ["gpt2", "kaiming", "unit_variance", "xavier", "xavier_per_head"])
def test_drawing_by_name_keeps_the_distribution(rule):
    wide = ["model.d_model=96", "model.n_layers=2", "model.tie_embeddings=false", f"model/init={rule}"]
    by_name, in_a_row = (model_of(*wide, paired=paired) for paired in (True, False))
    assert by_name.keys() == in_a_row.keys()
    for name, tensor in by_name.items():
        if tensor.ndim == 2:
            assert not torch.equal(tensor, in_a_row[name])
            assert float(tensor.std()) == pytest.approx(float(in_a_row[name].std()), rel=0.1)
            assert abs(tensor.mean()) < 0.1 * tensor.std()
    drawn = [tensor.flatten()[:50] for name, tensor in by_name.items() if tensor.ndim == 2]
    for i, one in enumerate(drawn):
        for other in drawn[:i]:
            assert torch.corrcoef(torch.stack([one, other]))[0, 1].abs() < 0.7, "two matrices with one draw"


def test_draws_by_name_leave_the_other_draws_alone():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    state = torch.get_rng_state()
    with drawn_by_name(5):
        Gpt2(0.02)(model)
        first = model[0].weight.clone()
        torch.rand(3)
        Gpt2(0.02)(model)
    assert torch.equal(model[0].weight, first)
    torch.set_rng_state(state)
    Gpt2(0.02)(model)
    assert not torch.equal(model[0].weight, first), "outside nothing is drawn by name"


def test_diverged_training_says_so():
    with pytest.raises(Diverged, match="not finite in step"):
        train(prepare(compose("train", [*BASE, "optim.lr=1e30", "trainer.clip_norm=null", "schedule.warmup_steps=0"])))


def test_what_the_loop_does_not_have_is_refused():
    with pytest.raises(ConfigError, match="accumulate"):
        train(prepare(compose("train", [*BASE, "trainer.accumulate=2"])))


@pytest.mark.slow
def test_loop_adds_at_most_a_millisecond_to_a_bare_step():
    steps, rounds = 150, 7
    cfg = compose("train", [*BASE, f"trainer.max_steps={steps}"])
    added = []
    for _ in range(rounds):
        subject = prepare(cfg)
        framework = train(subject)
        subject = prepare(cfg)
        bare = bare_loop(subject, steps)
        added.append((framework - bare) / steps)
    assert sorted(added)[rounds // 2] < 1e-3, [f"{1000 * a:.2f} ms" for a in added]


def bare_loop(subject, steps):
    """Forward, backward, optimizer: nothing else."""
    optimizer = build(subject.cfg.optim)(subject.model)
    batches = [subject.data.train_batch(step) for step in range(steps)]
    subject.model.train()
    begun = time.process_time()
    for batch in batches:
        loss, _ = subject.objective(subject.model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return time.process_time() - begun
