"""Every part of a run built once, so that a wrong choice is found before the data is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from minitf.command_line import Job
from minitf.config import DATA_FACTS, build, build_data, set_data_facts
from minitf.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

    from minitf.data.base import BaseData
    from minitf.data.tokenizer import BaseTokenizer
    from minitf.data.windows import View


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
    set_data_facts(trial, **dict.fromkeys(DATA_FACTS, 2))
    build(trial.logger)
    data, objective = build_data(trial), build(trial.task)
    fit_to_task(data, objective)
    model = build(trial.model)
    check_together(model, objective, trial.data.seq_len)
    if trial.trainer.compile and getattr(model, "has_loop", False):
        raise ConfigError(
            f"{type(model).__name__} steps from token to token, which compiling writes out step by step, for minutes: "
            "leave trainer.compile=false"
        )
    optimizer = build(trial.optim)(model)
    build(trial.schedule)(optimizer, n_steps=trial.trainer.max_steps)
    callbacks = build(trial.callbacks)(run_dir=job.folder, config={}, stop=job.stop)
    trainer = build(trial.trainer)(run_dir=job.folder, loggers=[], callbacks=callbacks)
    data.plan(trial.trainer.max_steps, trial.trainer.accumulate, 0, trainer.world_size)
    processes.check_several(trainer, optimizer, bool(job.sweep))


def check_together(model: nn.Module, objective: Any, seq_len: int) -> None:
    """Facts between parts that neither of them can see alone."""
    limit = getattr(model, "position_limit", None)
    if limit is not None and limit < seq_len:
        raise ConfigError(
            f"the position table has {limit} places (model.max_len), but a row of the data has "
            f"data.seq_len={seq_len}: leave model.max_len out, or choose model/position=rope, sinusoidal or none"
        )
    objective.check(model)


TASK_OF = {
    "text": "causal_lm or masked_lm",
    "answers": "answer",
    "seq2seq": "seq2seq",
    "pointer": "pointer",
    "classify": "classify",
    "tag": "tag",
}


def fit_to_task(data: BaseData, objective: Any) -> None:
    """Refuse data that is made for another task, and let text be seen as the task wants it.

    Args:
        data: prepared or not.
        objective: of the run.

    Raises:
        ConfigError: what the data gives is not what the objective takes.
    """
    if objective.takes != data.gives and not (objective.takes == "hidden_text" and data.gives == "text"):
        raise ConfigError(
            f"the data ({data.name}) is made for task={TASK_OF[data.gives]}, not for "
            f"{type(objective).__name__}: choose another task, or other data"
        )
    if objective.takes == "hidden_text":
        data.look_through(hide_tokens(data.tokenizer, objective))


def hide_tokens(tokenizer: BaseTokenizer, objective: Any) -> View:
    """What makes ids and targets of a text, some of its tokens hidden.

    Raises:
        ConfigError: the tokenizer has no id for a hidden token.
    """
    from minitf.data.masking import MaskTokens

    if tokenizer.mask_id is None:
        raise ConfigError(
            "the task hides tokens, but the tokenizer has no id for a hidden one: add data.tokenizer.special=[bos,mask]"
        )
    mask = MaskTokens(**objective.corruption)
    return lambda ids, real, rng: mask(
        ids,
        real,
        rng,
        mask_id=tokenizer.mask_id,
        special_ids=tokenizer.special_ids,
        vocab_size=tokenizer.vocab_size,
    )
