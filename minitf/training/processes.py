"""A run of several processes: which one this is, which folder they share, who goes first, and that they agree.

Process 0 names the run folder, writes and speaks. The others are started in one of two ways: by Lightning, which
repeats the command line when process 0 reaches `fit`; or from outside by torchrun, all at once.
"""

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import distributed
from torch.optim import Optimizer

from minitf.blocks.stack import Stack
from minitf.errors import ConfigError, DataError
from minitf.training.launched import from_torchrun, rank
from minitf.training.optim import MuonAdamW

PATIENCE = timedelta(hours=12)  # how long others wait while one prepares the data
_store: Any = None


def layout(devices: int) -> tuple[int, int]:
    """Processes per machine and number of machines: torchrun's where it started this process, else `devices` and 1."""
    if from_torchrun():
        here = int(os.environ["LOCAL_WORLD_SIZE"])
        return here, int(os.environ["WORLD_SIZE"]) // here
    return devices, 1


def be_quiet() -> None:
    """Let this process print nothing but errors: process 0 says the same."""
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the process ends
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)


def agree_on_folder(folder: Path) -> Path:
    """The run folder of process 0; under torchrun every process has made up one of its own, which is removed again.

    Args:
        folder: this process's own.
    """
    if not from_torchrun():
        return folder  # Lightning has told it to the processes that it started
    if rank() == 0:
        _shared().set("folder", str(folder.absolute()))
        return folder
    chosen = Path(_shared().get("folder").decode())
    if folder.absolute() != chosen and folder != Path.cwd():
        with contextlib.suppress(OSError):  # not empty, or not there
            folder.rmdir()
    return chosen


@contextlib.contextmanager
def first_here() -> Iterator[None]:
    """Let one process of each machine do something, such as preparing data, before its others do the same.

    If it fails, torchrun ends the others.
    """
    if not from_torchrun():
        yield
        return
    done = f"first on {os.environ['GROUP_RANK']}"
    if os.environ["LOCAL_RANK"] != "0":
        _shared().wait([done], PATIENCE)
    yield
    if os.environ["LOCAL_RANK"] == "0":
        _shared().set(done, "yes")


def end_children(trainer: L.Trainer, patience: float = 5.0) -> None:
    """After an error in process 0: end the processes that Lightning started, which may wait for it forever.

    Args:
        trainer: has started them.
        patience: seconds that each gets to end by itself.
    """
    for child in getattr(trainer.strategy.launcher, "procs", ()):
        if child.poll() is None:
            with contextlib.suppress(Exception):
                child.wait(timeout=patience)  # most notice by themselves
        if child.poll() is None:
            child.kill()
            child.wait()


def check_several(trainer: L.Trainer, optimizer: Optimizer, sweep: bool) -> None:
    """Refuse what several processes cannot do.

    Args:
        trainer, optimizer: of the run.
        sweep: the run is one job of several in this process.

    Raises:
        ConfigError: several processes in a sweep, or an optimizer that needs whole matrices where they are sharded.
    """
    if trainer.world_size > 1 and sweep:
        # the others would repeat the whole sweep, and the second job would find the processes of the first
        raise ConfigError(
            f"a sweep (-m) runs its jobs in one process, so none of them can have {trainer.world_size}: start each job "
            "as a command of its own, for example: for s in 0 1 2; do minitf-train trainer=ddp seed=$s; done"
        )
    if isinstance(trainer.strategy, ModelParallelStrategy) and isinstance(optimizer, MuonAdamW):
        raise ConfigError("optim=muon needs whole matrices, which trainer=fsdp does not keep: use optim=adamw")


class Agreement(Callback):
    """Before a run of several processes begins, make sure that all of them are there and see the same data."""

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Compare; raises DataError."""
        there = distributed.get_world_size() if distributed.is_initialized() else 1
        if there != trainer.world_size:
            # each would train on its share of the batch, and nobody on the rest
            raise RuntimeError(f"{trainer.world_size} processes were planned, but {there} are there")
        if there == 1:
            return
        record = getattr(trainer.datamodule, "record", {})
        own = {name: record.get(name) for name in ("sha256", "vocab_size", "train_tokens", "val_tokens")}
        facts: list[Any] = [None] * there
        distributed.all_gather_object(facts, own)
        for number, other in enumerate(facts):
            if other != facts[0]:
                raise DataError(
                    f"process {number} has other data than process 0: {other}, not {facts[0]}. Give every machine the "
                    "same text (data=python_stdlib is the Python that runs) and the same tokenizer"
                )


def first_found(own: str | None) -> str | None:
    """What the process with the lowest number has found that has found anything.

    Args:
        own: what this process has found. Every process must call it.
    """
    if not distributed.is_initialized():
        return own
    found: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(found, own)
    return next((item for item in found if item is not None), None)


def shard(model: torch.nn.Module, mesh: Any) -> None:
    """Spread parameters, gradients and optimizer state over the processes (FSDP2): layer by layer, then the rest.

    Args:
        model: any model, in whose stacks the layers lie; changed in place.
        mesh: the processes, one dimension.
    """
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    for stack in [module for module in model.modules() if isinstance(module, Stack)]:
        for layer in stack.layers:
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for name in ("hidden", "encode"):  # what objectives call instead of forward
        if hasattr(model, name):
            register_fsdp_forward_method(model, name)


def _shared() -> Any:
    """Keys and values that all processes of a torchrun see; the processes need not have met."""
    global _store
    if _store is None:
        from torch.distributed.rendezvous import rendezvous

        store, _, _ = next(rendezvous("env://", timeout=PATIENCE))
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        _store = distributed.PrefixStore(f"minitf/{attempt}", store)
    return _store
