import functools
import math
import statistics

import pytest
import torch
from training_stubs import MUON, Batches, Fixed, T, TinyDecoder, fit, history, make_task, tokens, val_batches

from minitf.training import schedule
from minitf.training.objective.causal_lm import CausalLM
from minitf.training.seeds import derive_seed


def weights(task):
    return [p.detach().clone() for p in task.model.parameters()]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def one_and_nine():
    """Ten scored tokens: as 1 + 9 micro-batches, and in one batch."""
    ids, targets = tokens(5, 4)[:, :-1], tokens(5, 4)[:, 1:].clone()
    targets[0, 1:] = targets[1] = -100
    targets[3, 3:] = -100
    parts = [{"ids": ids[r], "targets": targets[r], "n_scored": 10} for r in (slice(0, 2), slice(2, 4))]
    assert [(p["targets"] != -100).sum().item() for p in parts] == [1, 9]
    return Fixed(*parts), Fixed({"ids": ids, "targets": targets, "n_scored": 10})


@pytest.mark.parametrize("clip_norm", [None, 0.05])
def test_micro_batches_of_unequal_token_counts_equal_the_whole_batch(tmp_path, clip_norm):
    split, whole = one_and_nine()
    sgd = functools.partial(sgd_of, lr=1.0)  # the step is the gradient itself
    tasks = [make_task(optimizer=sgd) for _ in range(2)]
    fit(tasks[0], tmp_path / "split", split, max_steps=1, accumulate=2, clip_norm=clip_norm)
    fit(tasks[1], tmp_path / "whole", whole, max_steps=1, accumulate=1, clip_norm=clip_norm)
    torch.testing.assert_close(weights(tasks[0]), weights(tasks[1]), rtol=0, atol=1e-6)
    assert not same(weights(tasks[0]), list(TinyDecoder().parameters()))
    for name in ("train/loss", "train/grad_norm"):
        assert history(tmp_path / "split", name)[1] == pytest.approx(history(tmp_path / "whole", name)[1], rel=1e-6)
    assert history(tmp_path / "split", "train/grad_norm")[1] > 0.05  # the norm before clipping


def sgd_of(model, lr):
    return torch.optim.SGD(model.parameters(), lr=lr)


def test_a_step_is_the_plain_step_of_torch(tmp_path):
    """The task adds nothing to forward, backward, clip, step, schedule."""
    task, model = make_task(optimizer=MUON, make_schedule=schedule.cosine), TinyDecoder()
    fit(task, tmp_path, Batches(5), max_steps=5, clip_norm=0.5)
    optimizer = MUON(model)
    scheduler = schedule.cosine(optimizer, n_steps=5)
    for batch in Batches(5):
        optimizer.zero_grad()
        CausalLM()(model, batch)[0].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
    assert same(weights(task), list(model.parameters()))


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_rate_moves_once_per_optimizer_step(tmp_path, accumulate):
    task = make_task(make_schedule=functools.partial(schedule.linear, warmup_steps=2))
    fit(task, tmp_path, Batches(4, n_micro=accumulate), max_steps=4, accumulate=accumulate)
    assert history(tmp_path, "train/lr") == pytest.approx({1: 0.005, 2: 0.01, 3: 0.01, 4: 0.005})


def test_metrics_are_recorded_every_so_many_steps_and_at_the_last(tmp_path):
    trainer = fit(make_task(log_every=3), tmp_path, Batches(7, n_micro=2), max_steps=7, accumulate=2, log_every=3)
    assert list(history(tmp_path, "train/loss")) == [3, 6, 7]
    assert all(v > 0 for v in history(tmp_path, "train/tokens_per_s").values())
    assert trainer.callback_metrics["train/loss"].item() == pytest.approx(history(tmp_path, "train/loss")[7])
    assert list(history(tmp_path, "val/loss")) == [7]


def test_the_recorded_loss_is_that_of_the_step(tmp_path):
    fit(make_task(), tmp_path, Batches(1, n_micro=2), max_steps=1, accumulate=2)
    loss, _ = CausalLM()(TinyDecoder(), next(iter(Batches(1))))
    assert history(tmp_path, "train/loss")[1] == pytest.approx(loss.item(), rel=1e-6)


def test_validation_does_not_depend_on_the_batch_size(tmp_path):
    model, (whole,) = TinyDecoder(seed=3), val_batches(batch_size=8)
    with torch.no_grad():
        _, metrics = CausalLM()(model, whole)
    expected = metrics["nll"].item() / (7 * T + 2)
    for batch_size in (1, 3, 8):
        folder = tmp_path / str(batch_size)
        task = make_task(TinyDecoder(seed=3), optimizer=functools.partial(sgd_of, lr=1e-30), val_bytes=100)
        fit(task, folder, Batches(1), max_steps=1, val=val_batches(batch_size=batch_size))
        assert history(folder, "val/loss")[1] == pytest.approx(expected, rel=1e-6)
        bits = metrics["nll"].item() / math.log(2) / 100
        assert history(folder, "val/bits_per_byte")[1] == pytest.approx(bits, rel=1e-6)


def test_dropout_depends_on_seed_and_step_only(tmp_path):
    def run(name, seed=0, **settings):
        torch.manual_seed(len(name))  # whatever was drawn before does not matter
        task = make_task(TinyDecoder(dropout=0.5), seed=seed)
        fit(task, tmp_path / name, Batches(4, n_micro=2), max_steps=4, accumulate=2, **settings)
        return weights(task)

    base = run("base")
    assert same(base, run("with validation between", val_every=1))
    assert not same(base, run("another", seed=1))


def test_every_micro_batch_draws_its_own_dropout(tmp_path):
    seen = []

    class Recorder(TinyDecoder):
        def hidden(self, ids, pos=None):
            if self.training:
                seen.append(tuple((self.dropout(torch.ones(64)) != 0).tolist()))
            return super().hidden(ids, pos)

    fit(make_task(Recorder(dropout=0.5)), tmp_path, Batches(3, n_micro=2), max_steps=3, accumulate=2)
    assert len(set(seen)) == 6


def test_derived_seeds_are_spread():
    seeds = [derive_seed(seed, index) for seed in range(20) for index in range(200)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= s < 2**63 for s in seeds)
    ones = [bin(s).count("1") for s in seeds]
    assert statistics.mean(ones) == pytest.approx(31.5, abs=0.3)
