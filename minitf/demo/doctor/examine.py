"""The whole examination of a model."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from minitf.analysis.sites import sites
from minitf.demo.doctor import attention, outputs, paths
from minitf.demo.doctor.attention import Attention, Weights
from minitf.demo.doctor.modules import Modules
from minitf.demo.doctor.outputs import Outputs
from minitf.demo.doctor.paths import Paths
from minitf.errors import ConfigError

ROWS, LENGTH = 16, 12  # of the batch; every row has other queries and keys
SHORTEST = 4  # a row must hold a past, a future and a pair of keys


@dataclass(frozen=True)
class Examination:
    """What was seen.

    Args:
        attention: each attention module that could be given queries, keys and values.
        others: those that could not.
        outputs: the model as a whole.
        paths: each of the first again, on its fast path and by definition.
        definition: what is seen if they all compute by definition; None: the same, or this is it.
    """

    attention: list[Attention]
    others: list[Weights]
    outputs: Outputs
    paths: list[Paths]
    definition: Examination | None = None


def examine(model: nn.Module, n_words: Mapping[str, int]) -> Examination:
    """Probe a copy of a model in float64; the model and torch's random numbers stay as they are.

    Args:
        model: any model of minitf.
        n_words: "ids" -> size of its vocabulary, "src" -> that of its source if it reads one.

    Raises:
        ConfigError: it takes only rows that are too short to be probed, or its outputs are not finite.
    """
    copied = copy.deepcopy(model).double().eval()
    limit = getattr(model, "position_limit", None)
    length = LENGTH if limit is None else min(LENGTH, limit)
    if length < SHORTEST:
        raise ConfigError(f"this model reads at most {limit} tokens: the doctor needs rows of {SHORTEST} or more")
    generator = torch.Generator().manual_seed(0)
    batch = {name: torch.randint(n, (ROWS, length), generator=generator) for name, n in n_words.items()}
    found = sites(copied)
    with torch.random.fork_rng(devices=[]):
        modules = Modules(copied, batch, found)
        others = [site for site in found if site not in modules.sites]
        both = paths.compare(copied, batch, n_words, found)

        def look(definition: Examination | None = None) -> Examination:
            return Examination(
                attention.look(modules),
                attention.weights_of(copied, batch, others) if others else [],
                outputs.look(copied, batch, n_words),
                both,
                definition,
            )

        if not any(one.differs for one in both):
            return look()
        with paths.by_definition(copied, modules.sites):
            definition = look()
        return look(definition)
