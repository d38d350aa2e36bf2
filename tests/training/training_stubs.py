"""A decoder of a few hundred weights and a stream of batches: what the training tests need of model and data."""

import functools

import torch
from torch import nn

from minitf.training import optim, schedule
from minitf.training.metrics import MetricsCsv, read_metrics
from minitf.training.objective.causal_lm import CausalLM
from minitf.training.saving import RunCheckpoint
from minitf.training.task import Task
from minitf.training.trainer import make_trainer

V, D, T = 11, 8, 6


class TinyDecoder(nn.Module):
    """Embedding, one residual layer, tied head; every position sees itself only."""

    def __init__(self, dropout=0.0, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.embedding = nn.Embedding(V, D)
        nn.init.normal_(self.embedding.weight, std=0.3)
        self.norm = nn.LayerNorm(D)
        self.up, self.down = nn.Linear(D, 2 * D), nn.Linear(2 * D, D)
        self.dropout = nn.Dropout(dropout)
        self.unembedding = nn.Linear(D, V, bias=False)
        self.unembedding.weight = self.embedding.weight
        self.seen_pos = None

    def hidden(self, ids, pos=None):
        self.seen_pos = pos
        x = self.embedding(ids)
        return x + self.dropout(self.down(torch.relu(self.up(self.norm(x)))))

    def head(self, hidden):
        return self.unembedding(hidden)


class Batches:
    """Micro-batches of a whole run, of which those before `start_step` are not yielded; a pure function of the step."""

    def __init__(self, n_steps, n_micro=1, rows=4, start_step=0):
        self.n_steps, self.n_micro, self.rows, self.start_step = n_steps, n_micro, rows, start_step

    def __len__(self):
        return self.n_steps * self.n_micro

    def __iter__(self):
        for step in range(self.start_step, self.n_steps):
            ids = tokens(step, self.rows)
            for part in ids.chunk(self.n_micro):
                yield {"ids": part[:, :-1], "targets": part[:, 1:], "n_scored": self.rows * T}


class Fixed:
    """Given batches, as an iterable that is no list (Lightning takes a list for several loaders)."""

    def __init__(self, *batches):
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return iter(self.batches)


def tokens(seed, rows):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, V, (rows, T + 1), generator=generator)


def val_batches(rows=8, batch_size=3):
    """Yield the same rows however they are batched; the last ones are padded with targets that do not count."""
    ids = tokens(999, rows)
    targets = ids[:, 1:].clone()
    targets[-1, 2:] = -100
    pairs = zip(ids[:, :-1].split(batch_size), targets.split(batch_size), strict=True)
    return Fixed(*({"ids": i, "targets": t} for i, t in pairs))


ADAMW = functools.partial(optim.adamw, lr=0.01)
MUON = functools.partial(optim.muon, lr=0.02, adamw_lr=0.01)


def make_task(
    model=None,
    optimizer=ADAMW,
    make_schedule=schedule.constant,
    seed=0,
    log_every=1,
    val_bytes=None,
):
    model = TinyDecoder() if model is None else model
    return Task(model, CausalLM(), optimizer, make_schedule, seed=seed, log_every=log_every, val_bytes=val_bytes)


def fit(task, folder, train, max_steps, val=None, callbacks=(), ckpt_path=None, checkpoint=True, **settings):
    """Train on CPU with the project's own trainer and return it."""
    settings = {"val_every": 10_000, "log_every": 1, "precision": "32-true", "accelerator": "cpu", **settings}
    callbacks = list(callbacks) + ([RunCheckpoint(folder, {"seed": 0})] if checkpoint else [])
    trainer = make_trainer(folder, [MetricsCsv(folder)], callbacks, max_steps=max_steps, **settings)
    trainer.fit(task, train, val_batches() if val is None else val, ckpt_path=ckpt_path)
    return trainer


def history(folder, name):
    """Return {step: value} of one metric."""
    return {row["step"]: row[name] for row in read_metrics(folder) if name in row}
