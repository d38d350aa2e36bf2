"""What every test starts from: few threads and one seed, so that a failure happens again."""

import os
import signal

import hydra
import pytest
import torch
from composed_once import compose_once

if "PYTEST_XDIST_WORKER" in os.environ:  # one test a core: a second thread would only get in the way
    os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(min(int(os.environ.get("OMP_NUM_THREADS", 2)), torch.get_num_threads()))
hydra.compose = compose_once  # minitf.config calls it by this name


def pytest_addoption(parser):
    parser.addoption("--fuzz-configs", type=int, default=300, help="random command lines that tests/fuzz tries")
    parser.addoption("--fuzz-seed", type=int, default=0, help="seed of the first of them; the next one has the next")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _signals():
    """A command that was interrupted ignores further signals, as it is about to end; these tests go on."""
    earlier = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in earlier.items():
        signal.signal(number, handler)
