import pytest
import torch

from minitf.errors import ConfigError
from minitf.training import schedule


def factors(make, n_steps, **settings):
    """Return the factor of every step of a run, peak rate 1."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimizer, n_steps=n_steps, **settings)
    rates = []
    for _ in range(n_steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize(
    ("make", "settings", "expected"),
    [
        # warm-up of 2 in a run of 6: progress 0, 1/4, 1/2, 3/4 in the four steps after it
        (schedule.cosine, {}, [0.5, 1, 1, 0.8535534, 0.5, 0.1464466]),
        (schedule.cosine, {"min_ratio": 0.1}, [0.5, 1, 1, 0.8681981, 0.55, 0.2318019]),
        (schedule.linear, {}, [0.5, 1, 1, 0.75, 0.5, 0.25]),
        (schedule.linear, {"min_ratio": 0.2}, [0.5, 1, 1, 0.8, 0.6, 0.4]),
        (schedule.constant, {}, [0.5, 1, 1, 1, 1, 1]),
        # sqrt(2 / (step + 1))
        (schedule.inverse_sqrt, {}, [0.5, 1, 0.8164966, 0.7071068, 0.6324555, 0.5773503]),
        # the last half of 6 steps: from step 3 on
        (schedule.wsd, {"decay_fraction": 0.5}, [0.5, 1, 1, 1, 2 / 3, 1 / 3]),
        (schedule.wsd, {"decay_fraction": 0.5, "min_ratio": 0.4}, [0.5, 1, 1, 1, 0.8, 0.6]),
    ],
)
def test_worked_factors(make, settings, expected):
    assert factors(make, 6, warmup_steps=2, **settings) == pytest.approx(expected, abs=1e-6)


ALL = [schedule.cosine, schedule.linear, schedule.constant, schedule.inverse_sqrt, schedule.wsd]


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("warmup_steps", [0, 1, 3, 10, 50])
def test_every_step_of_a_run_learns_and_none_exceeds_the_peak(make, warmup_steps):
    rates = factors(make, 10, warmup_steps=warmup_steps)
    assert all(0 < rate <= 1 for rate in rates)
    if warmup_steps == 50:  # the run ends within the warm-up
        assert rates == pytest.approx([(step + 1) / 50 for step in range(10)])


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize(
    ("settings", "message"),
    [({"n_steps": 0}, r"trainer\.max_steps \(0\)"), ({"n_steps": 5, "warmup_steps": -1}, r"warmup_steps \(-1\)")],
)
def test_counts_out_of_range(make, settings, message):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    with pytest.raises(ConfigError, match=message):
        make(optimizer, **settings)


def test_shares_out_of_range():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    with pytest.raises(ConfigError, match=r"min_ratio \(1.5\)"):
        schedule.cosine(optimizer, n_steps=5, min_ratio=1.5)
    with pytest.raises(ConfigError, match=r"decay_fraction \(0\)"):
        schedule.wsd(optimizer, n_steps=5, decay_fraction=0)
