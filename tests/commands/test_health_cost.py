"""What callbacks=health costs at its default interval."""

import time

import pytest
from runs import train_here

from minitf.training.health import Health

HOOKS = ("on_train_batch_start", "on_before_optimizer_step", "on_train_batch_end")


@pytest.mark.slow
@pytest.mark.parametrize(
    "typed",
    [
        [
            "data=repeat",
            "task=answer",
            "model.d_model=48",
            "model.n_layers=2",
            "model/ffn=none",
            "trainer.max_steps=300",
        ],
        ["data=reverse", "model=encdec_tiny", "task=seq2seq", "trainer.max_steps=100", "schedule.warmup_steps=10"],
    ],
    ids=["attention", "encdec"],
)
def test_at_most_two_percent_of_the_training(tmp_path, monkeypatch, typed):
    spent, ends = [], []

    def timed(hook):
        plain = getattr(Health, hook)

        def call(*arguments):
            start = time.process_time()
            plain(*arguments)
            ends.append(time.process_time())
            spent.append(ends[-1] - start)

        monkeypatch.setattr(Health, hook, call)

    for hook in HOOKS:
        timed(hook)
    train_here(tmp_path / "run", [*typed, "callbacks=health", "trainer.val_every=1000", "trainer.precision=32-true"])
    training = ends[-1] - ends[0]
    share = sum(spent[1:]) / (training - sum(spent[1:]))
    print(f"health takes {share:.2%} of {training:.1f} s of CPU")
    assert 0 < share < 0.02
