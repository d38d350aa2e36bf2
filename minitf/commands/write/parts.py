"""What a writer is made of, built from the wishes: sampler, caches, rules, the draft."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from minitf.commands.write.kinds import TextKind, kind_of
from minitf.config import build
from minitf.errors import ConfigError
from minitf.files import user_path

if TYPE_CHECKING:
    from torch import nn

    from minitf.cache import KVCache


def sampler_of(cfg: DictConfig) -> Callable:
    """The sampler. Raises ConfigError where its settings make none."""
    made = build(cfg.sampler)
    if not callable(made) or isinstance(made, functools.partial | type):
        raise ConfigError(
            f"sampler._target_={cfg.sampler.get('_target_')} gives no sampler, but {made!r:.80}: leave "
            "sampler._target_ and sampler._partial_ as they are"
        )
    return made


def cache_factory(cfg: DictConfig) -> Callable[[], KVCache]:
    """What makes the cache of a layer. Raises ConfigError where the settings make none, or a single one."""
    from minitf.cache import KVCache

    try:
        make = build(cfg.cache)
        trial = make() if callable(make) else None
    except (TypeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"cache._target_={cfg.cache.get('_target_')}: {error}") from error
    if not isinstance(trial, KVCache):
        what = "one cache for all layers" if isinstance(make, KVCache) else f"no cache, but {trial or make!r:.80}"
        raise ConfigError(
            f"cache._target_={cfg.cache.get('_target_')} gives {what}: leave cache._target_ and cache._partial_ as "
            "they are, and choose an option, such as cache=dynamic"
        )
    return make


def rules_of(cfg: DictConfig, stop: Sequence[int]) -> list[Callable]:
    """The rules that were asked for; those that change nothing are left out."""
    from minitf.generation.rules import MinLength, NoRepeatNgram, RepetitionPenalty

    rules: list[Callable] = []
    if cfg.repetition_penalty != 1:
        rules.append(RepetitionPenalty(cfg.repetition_penalty))
    if cfg.no_repeat_ngram is not None:
        rules.append(NoRepeatNgram(cfg.no_repeat_ngram))
    if cfg.min_new_tokens != 0:
        rules.append(MinLength(cfg.min_new_tokens, stop))
    return rules


def load_draft(draft: str, run: str, cfg: DictConfig, tokenizer: Any) -> nn.Module:
    """The model that drafts, after checking that its ids mean the same."""
    from minitf.runs import load_run

    model, own, run_cfg = load_run(user_path(draft), "best", list(cfg.allow))
    kind = kind_of(model, own, run_cfg, draft)
    if not isinstance(kind, TextKind) or own.content() != tokenizer.content():
        raise ConfigError(
            f"draft={draft} and run={run} have different tokenizers: train the draft with the same data and "
            "data.tokenizer as the run"
        )
    return model
