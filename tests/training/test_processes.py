import os
import socket
import subprocess
import sys

import process_stubs
import pytest
import torch
from training_stubs import history

from minitf.errors import ConfigError, DataError
from minitf.training import processes
from minitf.training.metrics import read_metrics
from minitf.training.trainer import make_trainer


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Folder with process_stubs.RUNS trained by two processes, started as Lightning starts them."""
    folder = tmp_path_factory.mktemp("two")
    meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "NODE_RANK": "0", "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, process_stubs.__file__, str(folder)],
            env={**os.environ, **meet, "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for process in started:
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors
    finally:
        for process in started:
            process.kill()
    return folder


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    for name in process_stubs.RUNS:
        process_stubs.train(name, folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", process_stubs.RUNS)
def test_two_processes_train_as_one(one, two, name):
    # Muon rounds to bfloat16, which turns a last bit of the gradient into 2**-9 of an entry of the update
    tolerance = 1e-4 if name == "muon" else 1e-6
    for metric in ("train/loss", "train/grad_norm", "val/loss"):
        expected, got = history(one / name, metric), history(two / name, metric)
        assert list(got) == list(expected)
        slack = 50 if metric == "train/grad_norm" else 1
        assert got == pytest.approx(expected, rel=tolerance * slack), metric
    assert list(history(two / name, "train/loss")) == list(range(1, 9))
    rows = [row["step"] for row in read_metrics(two / name)]
    assert len(rows) == 8 + 3 + 4, "each process has written its own"
    health = history(two / name, "health/relative_residual.1")
    assert list(health) == [0, 3, 6, 8]
    assert min(health.values()) > 0
    # each process looks at its own rows, but the gradients are those of the whole step
    expected, got = history(one / name, "health/gradient_w_v.1"), history(two / name, "health/gradient_w_v.1")
    assert got == pytest.approx(expected, rel=1e-2 if name == "muon" else 1e-3)
    a, b = (torch.load(f / name / "checkpoints" / "last-step=8.ckpt", weights_only=True) for f in (one, two))
    assert list(a["state_dict"]) == list(b["state_dict"])
    torch.testing.assert_close(b["state_dict"], a["state_dict"], rtol=0, atol=1e-2 if name == "muon" else 1e-4)


def test_the_number_of_a_process(monkeypatch):
    for name in ("TORCHELASTIC_RUN_ID", "RANK", "LOCAL_RANK", "NODE_RANK", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert (processes.rank(), processes.layout(3)) == (0, (3, 1))
    monkeypatch.setenv("LOCAL_RANK", "1")  # alone, it may be anybody's
    assert processes.rank() == 0
    monkeypatch.setenv("NODE_RANK", "0")
    monkeypatch.setenv("MASTER_PORT", "1234")
    assert processes.rank() == 1
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "RANK": "5", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "6"}.items():
        monkeypatch.setenv(name, value)
    assert (processes.rank(), processes.layout(1)) == (5, (2, 3))


class Stub:
    """What the checks read of a trainer."""

    def __init__(self, world_size, strategy=None, record=None):
        self.world_size, self.strategy = world_size, strategy
        self.datamodule = type("Data", (), {"record": record or {}})()


def test_a_process_that_is_missing_is_noticed():
    with pytest.raises(RuntimeError, match="2 processes were planned, but 1"):
        processes.Agreement().setup(Stub(2), None, "fit")
    processes.Agreement().setup(Stub(1), None, "fit")


def test_other_data_on_another_machine_is_noticed(monkeypatch):
    def gather(into, own):
        into[:] = [own, {**own, "sha256": "other"}]

    monkeypatch.setattr(processes.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(processes.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(processes.distributed, "all_gather_object", gather)
    with pytest.raises(DataError, match="process 1 has other data"):
        processes.Agreement().setup(Stub(2, record={"sha256": "mine"}), None, "fit")


def test_what_several_processes_cannot_do(tmp_path):
    settings = {"max_steps": 1, "val_every": 1, "log_every": 1, "accelerator": "cpu", "devices": 2}
    ddp, fsdp = (make_trainer(tmp_path, [], [], strategy=s, **settings) for s in ("auto", "fsdp"))
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    muon, adamw = process_stubs.MUON(model), process_stubs.ADAMW(model)
    with pytest.raises(ConfigError, match=r"sweep \(-m\).*command of its own"):
        processes.check_several(ddp, muon, sweep=True)
    with pytest.raises(ConfigError, match="use optim=adamw"):
        processes.check_several(fsdp, muon, sweep=False)
    processes.check_several(ddp, muon, sweep=False)
    processes.check_several(fsdp, adamw, sweep=False)
    one = make_trainer(tmp_path, [], [], strategy="ddp", **{**settings, "devices": 1})
    processes.check_several(one, muon, sweep=True)


def test_children_end_with_their_parent():
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    launcher = type("Launcher", (), {"procs": [sleeper]})()
    processes.end_children(Stub(2, strategy=type("Strategy", (), {"launcher": launcher})()), patience=0.1)
    assert sleeper.wait(timeout=10) != 0
