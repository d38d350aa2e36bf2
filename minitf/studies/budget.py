"""What all cells of a study have alike: steps, parameters, FLOPs or seconds of training."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping

import torch
from omegaconf import DictConfig, OmegaConf
from torch.utils.flop_counter import FlopCounterMode

from minitf.errors import ConfigError
from minitf.studies.loop import Subject, prepare, train
from minitf.studies.study import Study

CLOSE = 0.05  # share by which the numbers of parameters may differ
REHEARSED, SKIPPED = 30, 10  # steps that are timed beforehand, and the first of them that do not count
_known: dict[str, float] = {}  # figures of first cells, which all other cells ask for


def check_steps(study: Study, configs: Mapping[str, DictConfig]) -> None:
    """Refuse cells that train for different numbers of steps where the budget says that they do not.

    Args:
        study: whose budget counts.
        configs: cell -> its composed config.

    Raises:
        ConfigError: names the cell.
    """
    if study.budget not in ("steps", "parameters"):
        return
    steps = {cell: cfg.trainer.max_steps for cell, cfg in configs.items()}
    first = next(iter(steps), None)
    for cell, n in steps.items():
        if n != steps[first] and not study.source:  # cells that were typed have no budget to choose
            raise ConfigError(
                f"over=: {cell!r} would train for {n} steps and {first!r} for {steps[first]}, which is no fair "
                "comparison: make trainer.max_steps alike, or write a study with budget: flops or seconds"
            )
        if n != steps[first]:
            raise ConfigError(
                f"study={study.name} has budget: {study.budget}, but its cell {cell!r} trains for {n} steps and "
                f"{first!r} for {steps[first]}: make trainer.max_steps alike, or take budget: flops or seconds"
            )


def settle(
    study: Study, cell: str, subject: Subject, reference: DictConfig | None, granted: float | None
) -> float | None:
    """Give a cell the budget of the first one, and refuse it where that cannot be.

    With "flops", the number of steps is chosen so that the steps times the FLOPs of one (matrix products of the forward
    and the backward pass, as torch counts them) are those of the first cell. With "seconds" it is estimated from a
    rehearsal of a few steps, because the schedule of the learning rate must know it; training ends after these steps or
    when the seconds are over, whichever comes first, so a cell has about the same time, never much more.

    Args:
        study: of the cell.
        cell: its name.
        subject: fresh; `trainer.max_steps` of its config is set.
        reference: config of the first cell; None for that one itself.
        granted: seconds of CPU of the first cell's training.

    Returns:
        Seconds after which training must stop; None: no limit.

    Raises:
        ConfigError: the number of parameters is too different, or no seconds are given.
    """
    if reference is None or study.budget == "steps":
        return None
    cfg = subject.cfg
    if study.budget == "parameters":
        n, wanted = _n_params(subject), _of(reference, _n_params)
        if abs(n - wanted) > CLOSE * wanted:
            raise ConfigError(
                f"study={study.name} has budget: parameters, but its cell {cell!r} has {n:,} of them and "
                f"{study.reference!r} has {wanted:,.0f}: make them alike to within {CLOSE:.0%}"
            )
        return None
    if study.budget == "flops":
        total = reference.trainer.max_steps * _of(reference, flops_per_step)
        cfg.trainer.max_steps = max(1, round(total / flops_per_step(subject)))
        return None
    if granted is None:
        raise ConfigError(f"study={study.name} has budget: seconds, so {study.reference!r} must have been trained")
    cfg.trainer.max_steps = max(1, round(granted / _seconds_per_step(cfg)))
    return granted


def flops_per_step(subject: Subject) -> int:
    """FLOPs of the matrix products of one training step, on its first batch.

    Args:
        subject: is left as it is.
    """
    model = copy.deepcopy(subject.model).train()
    for module in model.modules():
        if getattr(module, "fast", None) is not None:
            module.fast = None  # torch does not count the attention kernel of the CPU, but its definition
    counter = FlopCounterMode(display=False)
    with torch.random.fork_rng(devices=[]), counter:
        loss, _ = subject.objective(model, subject.data.train_batch(0))
        loss.backward()
    return counter.get_total_flops()


def _n_params(subject: Subject) -> int:
    return sum(p.numel() for p in subject.model.parameters())


def _of(reference: DictConfig, count: object) -> float:
    """A figure of the first cell, which does not depend on the seed."""
    cfg = copy.deepcopy(reference)
    cfg.seed = 0
    name = f"{count.__name__} {OmegaConf.to_yaml(cfg)}"
    if name not in _known:
        _known[name] = count(prepare(cfg, paired=True))
    return _known[name]


def _seconds_per_step(cfg: DictConfig) -> float:
    """CPU seconds of a training step, from a few steps of a model that is thrown away."""
    cfg = copy.deepcopy(cfg)
    cfg.trainer.max_steps = REHEARSED
    marks: list[float] = []
    train(prepare(cfg, paired=True), until=lambda step: bool(marks.append(time.process_time())))
    return (marks[-1] - marks[SKIPPED]) / (len(marks) - 1 - SKIPPED)
