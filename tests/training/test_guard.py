"""A loss or gradient that is not finite stops the run before the step, and says where it began."""

import re

import pytest
import torch
from torch import nn
from training_stubs import ADAMW, MUON, Batches, TinyDecoder, fit, make_task

from minitf.training.checkpoint import find_checkpoint, load_weights, model_weights, read_checkpoint
from minitf.training.guard import Diverged
from minitf.training.seeds import derive_seed


class Breaks(nn.Module):
    """The identity, until its forward or backward pass gives nan in the micro-batch number `at` (from 1)."""

    def __init__(self, at, backward=False):
        super().__init__()
        self.seed, self.backward = derive_seed(0, at - 1), backward

    def forward(self, x):
        if torch.initial_seed() != self.seed:
            return x
        return x + 0 * (x - x.detach()).sqrt() if self.backward else x * float("nan")


def broken(at, backward=False):
    model = TinyDecoder()
    model.up = nn.Sequential(model.up, Breaks(at, backward))
    return model


@pytest.mark.parametrize("optimizer", [ADAMW, MUON])
@pytest.mark.parametrize(("accumulate", "clip_norm"), [(1, 1.0), (2, None)])
def test_the_step_is_not_made_and_the_weights_are_kept(tmp_path, optimizer, accumulate, clip_norm):
    good = make_task(TinyDecoder(), optimizer=optimizer)
    settings = {"accumulate": accumulate, "clip_norm": clip_norm}
    fit(good, tmp_path / "good", Batches(5, accumulate), max_steps=5, **settings)
    task = make_task(broken(at=6 * accumulate), optimizer=optimizer)  # the last micro-batch of step 6
    with pytest.raises(Diverged, match=r"in step 6 \(learning rate 0.0[12].*that of up.1\..*after step 5 are kept"):
        fit(task, tmp_path / "bad", Batches(9, accumulate), max_steps=9, **settings)
    for a, b in zip(task.model.parameters(), good.model.parameters(), strict=True):
        assert torch.equal(a, b)
    saved = read_checkpoint(find_checkpoint(tmp_path / "bad", "last"))
    assert saved["global_step"] == 5
    model = broken(at=10**6)
    load_weights(model, model_weights(saved))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), good.model.parameters(), strict=True))


def test_a_gradient_alone_names_the_parameter(tmp_path):
    task = make_task(broken(at=3, backward=True))
    with pytest.raises(Diverged, match=r"in step 3 .*every output is finite.* at the gradient of up\.0\."):
        fit(task, tmp_path, Batches(5), max_steps=5)


def test_a_run_that_goes_on_after_the_cause_is_gone_equals_a_good_one(tmp_path):
    good = make_task(TinyDecoder(dropout=0.2))
    fit(good, tmp_path / "good", Batches(9, 2), max_steps=9, accumulate=2, val_every=4)
    task = make_task(broken(at=12))
    task.model.dropout.p = 0.2
    with pytest.raises(Diverged):
        fit(task, tmp_path / "bad", Batches(9, 2), max_steps=9, accumulate=2, val_every=4)
    again = make_task(broken(at=10**6))
    again.model.dropout.p = 0.2
    last = find_checkpoint(tmp_path / "bad", "last")
    rest = Batches(9, 2, start_step=5)
    fit(again, tmp_path / "bad", rest, max_steps=9, accumulate=2, val_every=4, ckpt_path=last)
    assert all(torch.equal(a, b) for a, b in zip(again.model.parameters(), good.model.parameters(), strict=True))
    names = sorted(path.name for path in (tmp_path / "bad" / "checkpoints").iterdir())
    assert names[1] == "last-step=9.ckpt"
    assert re.fullmatch(r"best-step=[489].ckpt", names[0])
