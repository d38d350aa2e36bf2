"""Every part of a run built once, so that a wrong choice is found before the data is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from minitf.command_line import Job
from minitf.config import build, build_data, set_data_facts
from minitf.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn


def rehearse(cfg: DictConfig, job: Job) -> None:
    """Build every part once, with a small vocabulary.

    Args:
        cfg: of the run.
        job: where the run folder is; nothing is written there.

    Raises:
        ConfigError: a choice that cannot work.
    """
    from minitf.training import processes

    trial = cfg.copy()
    set_data_facts(trial, vocab_size=2)
    build(trial.logger)
    model = build(trial.model)
    check_together(model, build(trial.task), trial.data.seq_len)
    optimizer = build(trial.optim)(model)
    build(trial.schedule)(optimizer, n_steps=trial.trainer.max_steps)
    callbacks = build(trial.callbacks)(run_dir=job.folder, config={}, stop=job.stop)
    trainer = build(trial.trainer)(run_dir=job.folder, loggers=[], callbacks=callbacks)
    build_data(trial).plan(trial.trainer.max_steps, trial.trainer.accumulate, 0, trainer.world_size)
    processes.check_several(trainer, optimizer, bool(job.sweep))


def check_together(model: nn.Module, objective: Any, seq_len: int) -> None:
    """Facts between parts that neither of them can see alone."""
    limit = getattr(model, "position_limit", None)
    if limit is not None and limit < seq_len:
        raise ConfigError(
            f"the position table has {limit} places (model.max_len), but a row of the data has "
            f"data.seq_len={seq_len}: leave model.max_len out, or choose model/position=rope, sinusoidal or none"
        )
    if objective.needs_causal and model.sees_future:
        raise ConfigError(
            "the task predicts the next token, but the model's mask shows it: "
            "use model/mask=causal or model/mask=sliding_window"
        )
