"""A short training loop for toy models: what Lightning's Trainer does in one process, at less cost per step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from omegaconf import DictConfig
from torch import nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from minitf.blocks.init import drawn_by_name
from minitf.config import build, build_data, set_data_facts
from minitf.data.base import BaseData
from minitf.errors import ConfigError
from minitf.training.guard import Diverged
from minitf.training.precision import resolve_precision
from minitf.training.scores import scores
from minitf.training.seeds import derive_seed

PRECISIONS = ("32-true", "bf16-mixed")


@dataclass
class Subject:
    """A model with what it is trained on: what a measure looks at.

    Args:
        model: in evaluation mode whenever a measure sees it.
        data: prepared.
        objective: what it is trained for.
        cfg: the whole config, as in configs/train.yaml, with the facts of the data.
        step: optimizer steps done.
    """

    model: nn.Module
    data: BaseData
    objective: Any
    cfg: DictConfig
    step: int = 0


def prepare(cfg: DictConfig, progress: Callable[[str], object] = lambda line: None, paired: bool = False) -> Subject:
    """Data and a fresh model, as `scripts/train.py` makes them from the same config.

    Args:
        cfg: as composed; the facts of the data are written into it.
        progress: is called with what the data says of itself.
        paired: draw the weights by name, so that models of one seed start alike where they have the same parts.

    Raises:
        ConfigError, DataError: a choice that cannot work.
    """
    from lightning.fabric.utilities.seed import seed_everything

    seed_everything(cfg.seed, verbose=False)
    data = build_data(cfg).prepare(progress)
    set_data_facts(cfg, **data.facts)
    with drawn_by_name(cfg.seed) if paired else nullcontext():
        model = build(cfg.model)
    return Subject(model, data, build(cfg.task), cfg)


def train(
    subject: Subject,
    at: Collection[int] = (),
    look: Callable[[Subject], object] = lambda subject: None,
    until: Callable[[int], bool] = lambda step: False,
) -> float:
    """Train a subject in place, to the bit as `scripts/train.py` does in one process on a CPU.

    Args:
        subject: fresh.
        at: steps after which `look` is called; 0 is before the first.
        look: gets the subject, its model in evaluation mode.
        until: asked before each step whether to stop early, with the number of steps done.

    Returns:
        Seconds of CPU of this process that training took, without `look`.

    Raises:
        ConfigError: a setting that this loop does not have.
        Diverged: loss or gradient is no longer finite.
    """
    cfg, model, objective = subject.cfg, subject.model, subject.objective
    n_steps, clip_norm = cfg.trainer.max_steps, cfg.trainer.clip_norm
    context = _precision(cfg)
    optimizer = build(cfg.optim)(model)
    schedule = build(cfg.schedule)(optimizer, n_steps=n_steps)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    subject.data.plan(n_steps)
    batches = iter(subject.data.train_stream(n_steps))
    spent, begun = 0.0, time.process_time()

    def watch() -> None:
        nonlocal spent, begun
        if subject.step not in at:
            return
        spent += time.process_time() - begun
        model.eval()
        look(subject)
        model.train()
        begun = time.process_time()

    model.train()
    watch()
    while subject.step < n_steps and not until(subject.step):
        batch = next(batches)
        torch.default_generator.manual_seed(derive_seed(cfg.seed, subject.step))
        with context():
            loss, metrics = objective(model, batch)
        if "n_scored" in batch:
            loss = loss * (metrics["n_scored"] / batch["n_scored"])
        optimizer.zero_grad()
        loss.backward()
        gradients = [p.grad for p in parameters if p.grad is not None]
        norm = get_total_norm(gradients)
        if not math.isfinite(loss.detach() + norm):
            raise Diverged(
                f"loss or gradient is not finite in step {subject.step + 1}: the run has diverged. Lower optim.lr"
            )
        if clip_norm:
            clip_grads_with_norm_([p for p in parameters if p.grad is not None], clip_norm, norm)
        optimizer.step()
        schedule.step()
        subject.step += 1
        watch()
    spent += time.process_time() - begun
    model.eval()
    return spent


@torch.no_grad()
def validate(subject: Subject) -> dict[str, float]:
    """Scores over the whole validation split: "loss", and "accuracy", "exact", "bits_per_byte" where they exist."""
    subject.model.eval()
    sums: list[torch.Tensor] = []
    context = _precision(subject.cfg)
    for batch in subject.data.val_batches():
        with context():
            _, metrics = subject.objective(subject.model, batch)
        sums.append(torch.stack([metrics[name] for name in subject.objective.sums]))
    total = torch.stack(sums).double().sum(0).tolist()
    n_bytes = subject.data.val_bytes if subject.objective.takes == "text" else None
    return scores(dict(zip(subject.objective.sums, total, strict=True)), n_bytes)


def _precision(cfg: DictConfig) -> Callable[[], Any]:
    trainer = cfg.trainer
    if trainer.accumulate != 1 or trainer.devices != 1 or trainer.compile:
        raise ConfigError("a study trains in one process, in whole steps: leave accumulate, devices and compile alone")
    precision = resolve_precision(trainer.precision, "cpu")
    if precision not in PRECISIONS:
        raise ConfigError(f"a study trains in {' or '.join(PRECISIONS)}, not in trainer.precision={precision}")
    return nullcontext if precision == "32-true" else lambda: torch.autocast("cpu", dtype=torch.bfloat16)
