import pytest
import torch

from minitf.analysis.heads.measure import measure
from minitf.blocks.init import projections
from minitf.cache.window import Window
from minitf.config import compose
from minitf.studies.cell import run_cell
from minitf.studies.loop import prepare, train
from minitf.studies.measures import alarms, heads, health, sinks
from minitf.studies.measures.sample import joined, sample
from minitf.studies.study import load


def subject_of(study, cell, *more):
    """A fresh subject of a cell, with less to do."""
    study = load(study)
    return prepare(compose("train", [*study.base, *study.cells[cell], "data.n_val=48", *more]))


def heads_that_differ(model):
    """Whether the heads of the first layer have slices of their own."""
    slices = next(iter(projections(model))).by_head()
    return any(not torch.allclose(head, own[0], atol=1e-6, rtol=0) for own in slices.values() for head in own[1:])


def test_heads_that_are_alike_stay_alike_step_by_step_until_dropout_tells_them_apart():
    alike = subject_of("head_collapse", "identical heads", "trainer.max_steps=8", "schedule.warmup_steps=0")
    before = [p.clone() for p in alike.model.parameters()]
    train(alike)
    assert all(not torch.equal(old, new) for old, new in zip(before, alike.model.parameters(), strict=True))
    assert not heads_that_differ(alike.model)
    assert heads.diversity(alike)["js"] < 1e-9
    dropped = subject_of(
        "head_collapse", "identical, attention dropout", "trainer.max_steps=1", "schedule.warmup_steps=0"
    )
    assert not heads_that_differ(dropped.model)
    train(dropped)
    assert heads_that_differ(dropped.model)


def test_one_head_has_no_diversity():
    assert heads.diversity(subject_of("head_collapse", "one head")) == {}


def test_owners_of_heads_that_look_where_they_should():
    subject = subject_of("head_roles", "trained")
    found = heads.owners(subject)
    mass = next(iter(measure(subject.model, sample(subject)).values())).scores
    for role in range(1, 5):
        assert found[f"owner.back_{role}"] == mass[f"mass:back_{role}"].argmax()
    assert 1 <= found["owners"] <= 4
    second = max(sorted(float(mass[f"mass:back_{r}"][h]) for r in range(1, 5))[-2] for h in range(4))
    assert found["second_role"] == pytest.approx(second)


def test_a_head_that_owns_all_roles_costs_no_others():
    found = heads.owners(subject_of("head_roles", "trained", "model.attention.n_heads=1"))
    assert found["owners"] == 1
    assert "own_cost" in found
    assert "other_cost" not in found


@pytest.mark.parametrize(("rows", "sizes"), [(48, [32, 16]), (40, [32, 8]), (32, [32]), (10, [10]), (1000, [32, 16])])
def test_a_sample_has_as_many_rows_as_were_asked_for(rows, sizes):
    subject = subject_of("head_collapse", "healthy")
    batches = sample(subject, rows)
    assert [len(batch["ids"]) for batch in batches] == sizes
    assert torch.equal(joined(subject, rows)["ids"], torch.cat([batch["ids"] for batch in batches]))


def test_the_growth_of_the_logarithm_is_taken_above_the_floor(monkeypatch):
    residuals = [0.5, 0.25, 0.0625, 1e-7, 2e-7]
    layers = [type("Layer", (), {"relative_residual": value}) for value in residuals]
    monkeypatch.setattr(health, "layers_of", lambda subject, rows: layers)
    found = health.by_layer(None)
    assert found["log_growth"] == pytest.approx(2)
    assert [found[f"residual.{number}"] for number in range(1, 6)] == residuals


def test_the_monitor_is_asked_what_rings_now():
    dead = alarms.alarms(subject_of("head_collapse", "W_Q = W_K = 0"))
    well = alarms.alarms(subject_of("head_collapse", "healthy"))
    assert {name for name, rings in dead.items() if rings} == {"alarm.gradient"}
    assert set(well.values()) == {0.0}
    alike = alarms.alarms(subject_of("rank_collapse", "no residual"))
    assert alike["alarm.alike"] == 1
    assert alarms.alarms(subject_of("rank_collapse", "residual"))["alarm.alike"] == 0


def test_exploding_scores_are_seen_by_looking_twice(monkeypatch):
    monkeypatch.setattr(alarms, "mean_loss", lambda model, batches: 3.0)
    subject = subject_of("entropy_collapse", "no warm-up")
    assert alarms.alarms(subject)["alarm.logit"] == 0
    with torch.no_grad():
        for projection in projections(subject.model):
            projection.w_q.weight *= 100
    assert alarms.alarms(subject)["alarm.logit"] == 1


def test_a_cache_that_holds_all_tokens_loses_nothing_one_that_forgets_does():
    subject = subject_of("sink_eviction", "softmax")
    batches = sample(subject)
    at_once = sinks._late_loss(subject, batches, 16)
    assert sinks._late_loss(subject, batches, 16, Window(32, exact=False)) == pytest.approx(at_once, abs=1e-5)
    found = sinks.eviction(subject, window=16)
    assert found["loss_full"] == pytest.approx(at_once)
    assert abs(found["loss_evicted"] - at_once) > 1e-4
    assert found["jump"] == pytest.approx(found["loss_evicted"] - found["loss_kept"])
    assert found["left"] == pytest.approx(found["loss_kept"] - found["loss_full"])


def test_weight_of_dormant_queries():
    closed = sinks.sink(subject_of("sink", "softmax"))
    assert closed["row_mass"] == pytest.approx(1)
    assert closed["self_mass"] == 0
    assert sinks.sink(subject_of("sink", "open diagonal"))["self_mass"] > 0.01
    assert abs(sinks.sink(subject_of("sink", "sigmoid attention"))["row_mass"] - 1) > 0.1
    assert "sink_dormant" not in sinks.sink(subject_of("rank_collapse", "residual")), "every token asks there"


def scores(study, cell, *more):
    return run_cell(load(study), cell, 0, more).scores


@pytest.mark.slow
def test_four_heads_that_are_alike_are_worth_one():
    healthy, alike, one, cured = (
        scores("head_collapse", cell, "trainer.max_steps=250", "optim.lr=6.0e-3")
        for cell in ("healthy", "identical heads", "one head", "identical, attention dropout")
    )
    assert min(healthy["accuracy"], cured["accuracy"]) > 0.7
    assert alike["accuracy"] == pytest.approx(one["accuracy"], abs=0.05)
    assert alike["js"] < 0.02 < 0.3 < min(healthy["js"], cured["js"])


@pytest.mark.slow
def test_each_head_costs_its_own_role():
    found = scores("head_roles", "trained", "trainer.max_steps=300")
    assert found["owners"] >= 3
    assert found["own_cost"] > 0.3 > 0.2 > found["other_cost"]


@pytest.mark.slow
def test_without_residuals_tokens_are_alike_and_nothing_is_learned():
    healthy, bare = (scores("rank_collapse", cell, "trainer.max_steps=250") for cell in ("residual", "no residual"))
    assert healthy["accuracy"] > 0.5 > 0.2 > bare["accuracy"]
    assert bare["start.alarm.alike"] == 1
    assert healthy["start.alarm.alike"] == 0
    assert bare["start.log_growth"] > 1.7


@pytest.mark.slow
def test_warm_up_keeps_scores_small():
    bare, warm = (scores("entropy_collapse", cell) for cell in ("no warm-up", "warm-up"))
    assert warm["accuracy"] > 0.9 > 0.4 > bare["accuracy"]
    assert bare["max_logit"] > 400 > 150 > warm["max_logit"]
    assert (bare["alarm.logit"], warm["alarm.logit"]) == (1, 0)


@pytest.mark.slow
def test_a_sink_needs_rows_that_sum_to_one():
    normed, free = (scores("sink_eviction", cell, "trainer.max_steps=500") for cell in ("softmax", "sigmoid attention"))
    assert normed["sink_dormant"] > 0.3 > 0.1 > free["sink_dormant"]
    assert normed["jump"] > 0.005 > 0.001 > abs(free["jump"])
