"""Short trainings of real models, by one process or by several: python process_stubs.py FOLDER, once per process."""

import functools
import sys
from pathlib import Path

import numpy as np
import torch
from training_stubs import MUON, fit

from minitf.config import build, compose, set_data_facts
from minitf.data.windows import TrainStream, TrainWindows, ValBatches
from minitf.training.health import Health
from minitf.training.objective.causal_lm import CausalLM
from minitf.training.optim import adamw
from minitf.training.processes import rank
from minitf.training.schedule import constant
from minitf.training.task import Task

ADAMW = functools.partial(adamw, lr=0.003)
STEPS, ROWS, LENGTH, VOCAB = 8, 8, 12, 50
# name -> model, optimizer, micro-batches, strategy
RUNS = {
    "gpt": ("gpt_tiny", ADAMW, 1, "ddp"),
    "llama": ("llama_tiny", ADAMW, 2, "ddp"),
    "muon": ("gpt_tiny", MUON, 2, "ddp"),
    "sharded": ("llama_tiny", ADAMW, 2, "fsdp"),
}


def train(name: str, folder: Path, rank: int = 0, world_size: int = 1, **settings: object):
    """Train one of RUNS and return the trainer; metrics and checkpoints lie in folder/name."""
    model, optimizer, n_micro, strategy = RUNS[name]
    torch.manual_seed(0)
    cfg = compose("train", [f"model={model}", "model.d_model=32", "model.n_layers=2", f"data.seq_len={LENGTH}"])
    set_data_facts(cfg, vocab_size=VOCAB)
    tokens = np.random.default_rng(0).integers(VOCAB, size=500).astype(np.uint16)
    stream = TrainStream(TrainWindows(tokens, LENGTH, ROWS, seed=0), STEPS, 0, n_micro, rank, world_size)
    # 42 windows: their batches do not come out even for two processes
    val = ValBatches(tokens, LENGTH, ROWS // (n_micro * world_size), rank, world_size)
    task = Task(build(cfg.model), CausalLM(), optimizer, constant, seed=0, log_every=1)
    callbacks = [Health(every=3, rows=2)]
    settings = {
        "callbacks": callbacks,
        "val_every": 3,
        "accumulate": n_micro,
        "devices": world_size,
        "strategy": strategy,
        **settings,
    }
    return fit(task, folder / name, stream, STEPS, val=val, **settings)


if __name__ == "__main__":
    for name in RUNS:
        trainer = train(name, Path(sys.argv[1]), rank(), 2)
        assert trainer.world_size == 2
        assert len(trainer.loggers) == (rank() == 0)
