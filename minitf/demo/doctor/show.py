"""demo=doctor: the laws of attention, asked of one model."""

from __future__ import annotations

from collections.abc import Sequence

from omegaconf import DictConfig
from torch import nn

from minitf.demo.doctor.examine import examine
from minitf.demo.doctor.laws import BROKEN, DESIGN, SCALE, Law, laws, state
from minitf.demo.doctor.mistakes import named, unexplained
from minitf.demo.record import build_model
from minitf.demo.text import paragraph, table
from minitf.errors import ConfigError
from minitf.hints import command
from minitf.runs import load_run

HEALTHY = "None of these laws is broken."


def doctor(*, config: DictConfig) -> str:
    """Probe the model of a run, or a fresh one, and say which laws it breaks and which mistake that looks like.

    Args:
        config: `run` is the folder of a run; without one, the model that `model` describes is built and probed.

    Raises:
        ConfigError: no such run, or a model that cannot be probed.

    What it prints of a run that was trained with +bug=wrong_axis:

        law                                state       what was seen
        the weights of a query sum to 1    BROKEN      sums 0.006 to 4.814
        those of a key do not              BROKEN      sums 1.000 to 1.000
        a query is not changed by another  BROKEN      another query, other weights
        keys may stand in any order        holds       keys swapped with their values in 2 of 2 modules
        scores are divided by root of d    holds       q, k of variance 1: scores of deviation 1.03 (d 24, root 4.90)
        ...
        It looks like wrong_axis: softmax runs over the queries (dim=-2), not over the keys: ...
    """
    if config.run is None:
        model, data = build_model(config), config.data
        whose = "a fresh model; run=FOLDER takes one that was trained"
    else:
        model, _, own = load_run(config.run, which=config.which, allow=list(config.allow))
        data, whose = own.data, f"the run {config.run}"
    return "\n\n".join([f"{type(model).__name__}, {whose}", *_report(model, _words(model, data))])


def _words(model: nn.Module, data: DictConfig) -> dict[str, int]:
    """Sizes of the vocabularies of what the model reads."""
    if not hasattr(model, "encode"):
        return {"ids": data.vocab_size}
    if data.src_vocab_size is None:
        raise ConfigError("this model reads a source, and its data has none")
    return {"ids": data.vocab_size, "src": data.src_vocab_size}


def _report(model: nn.Module, n_words: dict[str, int]) -> list[str]:
    found = examine(model, n_words)
    all_laws = laws(found)
    rows = [(f"  {law.name}", law.state, law.seen) for law in all_laws]
    text = [table(("  law", "state", "what was seen"), rows, left=3)]
    mistakes = named(found, all_laws)
    for mistake in mistakes:
        name = f"It looks like {mistake.name} (minitf/lab/{mistake.name}.py): " if mistake.name else "It looks like "
        text.append(paragraph(name + mistake.told))
    if rest := unexplained(mistakes, all_laws):
        text.append(paragraph("Broken, and by none of the mistakes that are known here: " + _names(rest) + "."))
    if not any(law.state == BROKEN for law in all_laws):
        text.append(HEALTHY)
    if open_ones := [law for law in all_laws if law.state == DESIGN]:
        text.append(paragraph("Worth a look, though right in some models: " + _names(open_ones) + "."))
    if state(all_laws, SCALE) == DESIGN:
        text.append(paragraph(_NO_SCALE))
    text.append(paragraph(_HOW))
    return text


def _names(found: Sequence[Law]) -> str:
    return ", ".join(f'"{law.name}"' for law in found)


_NO_SCALE = (
    "The scores are nearly the products q.k as they are. If that is no_scale (minitf/lab/no_scale.py), it is not felt: "
    "this model's own products are small enough. T5 does it on purpose, and starts with small queries instead."
)
_HOW = (
    "Each attention module was given random queries, keys and values, and single tokens were changed; only what came "
    f"out was compared. {command('train')} +bug=NAME trains a model with one of the mistakes of the lab."
)
