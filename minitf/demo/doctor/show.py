"""demo=doctor: the laws of attention, asked of one model."""

from __future__ import annotations

from collections.abc import Sequence

from omegaconf import DictConfig
from torch import nn

from minitf.demo.doctor.examine import examine
from minitf.demo.doctor.laws import BROKEN, DESIGN, DROPOUT, ITSELF, PATHS, SCALE, Law, laws, state
from minitf.demo.doctor.mistakes import named, unexplained
from minitf.demo.record import build_model
from minitf.demo.text import paragraph, table, wrapped
from minitf.errors import ConfigError
from minitf.hints import command
from minitf.runs import load_run

HEALTHY = "None of these laws is broken."
SEEN = 52  # columns of what was seen


class Told(str):
    """A text for the screen, and the exit status of the command that prints it.

    Args:
        text: what is printed.
        exit_code: 0, or 1 where a law is broken.
    """

    exit_code: int

    def __new__(cls, text: str, exit_code: int) -> Told:
        told = super().__new__(cls, text)
        told.exit_code = exit_code
        return told


def doctor(*, config: DictConfig) -> str:
    """Probe the model of a run, or a fresh one, and say which laws it breaks and which mistake that looks like.

    Args:
        config: `run` is the folder of a run; without one, the model that `model` describes is built and probed.

    Raises:
        ConfigError: no such run, or a model that cannot be probed.

    What it prints of a run that was trained with +bug=wrong_axis:

    law                                        state       what was seen
    the weights of a query sum to 1            BROKEN      sums 0.006 to 4.814
    the weights of a key need not sum to 1     BROKEN      sums 1.000 to 1.000
    a query does not change another's weights  BROKEN      one query exchanged: other weights elsewhere
    keys and values may stand in any order     holds       two keys and values swapped, in 2 of 2 modules
    a token reads itself                       holds       every token, in 2 of 2 modules
    ...
    It looks like wrong_axis: softmax runs over the queries (dim=-2), not over the keys: ...
    """
    if config.run is None:
        model, data = build_model(config), config.data
        whose = "a fresh model; run=FOLDER takes one that was trained"
    else:
        model, _, own = load_run(config.run, which=config.which, allow=list(config.allow))
        data, whose = own.data, f"the run {config.run}"
    text, broken = _report(model, _words(model, data))
    return Told("\n\n".join([f"{type(model).__name__}, {whose}", *text]), exit_code=int(broken))


def _words(model: nn.Module, data: DictConfig) -> dict[str, int]:
    """Sizes of the vocabularies of what the model reads."""
    if not hasattr(model, "encode"):
        return {"ids": data.vocab_size}
    if data.src_vocab_size is None:
        raise ConfigError("this model reads a source, and its data has none")
    return {"ids": data.vocab_size, "src": data.src_vocab_size}


def _report(model: nn.Module, n_words: dict[str, int]) -> tuple[list[str], bool]:
    """What is printed, and whether a law is broken."""
    found = examine(model, n_words)
    all_laws = laws(found)
    rows = [row for law in all_laws for row in _rows(law)]
    text = [table(("  law", "state", "what was seen"), rows, left=3)]
    mistakes = named(found)
    for mistake in mistakes:
        name = f"It looks like {mistake.name} (minitf/lab/{mistake.name}.py): " if mistake.name else "It looks like "
        text.append(paragraph(name + mistake.told))
    if rest := unexplained(mistakes, all_laws):
        text.append(paragraph("Broken, and by none of the mistakes that are known here: " + _names(rest) + "."))
    broken = any(law.state == BROKEN for law in all_laws)
    if not broken:
        text.append(HEALTHY)
    if open_ones := [law for law in all_laws if law.state == DESIGN]:
        text.append(paragraph("Worth a look, though right in some models: " + _names(open_ones) + "."))
    if state(all_laws, SCALE) == DESIGN:
        text.append(paragraph(_NO_SCALE))
    if found.others:
        which = ", ".join(one.site.prefix for one in found.others)
        text.append(paragraph(_UNPROBED.format(which=which, names=_names(all_laws, ITSELF, SCALE, DROPOUT, PATHS))))
    text.append(paragraph(_HOW))
    return text, broken


def _rows(law: Law) -> list[tuple[str, str, str]]:
    """The lines of a law: what was seen may take several."""
    first, *more = wrapped(law.seen, SEEN)
    return [(f"  {law.name}", law.state, first), *(("", "", f"  {line}") for line in more)]


def _names(found: Sequence[Law], *only: str) -> str:
    return ", ".join(f'"{law.name}"' for law in found if law.name in only or not only)


_NO_SCALE = (
    "The scores are nearly the products q.k as they are. If that is no_scale (minitf/lab/no_scale.py), it is not felt: "
    "this model's own products are small enough. T5 does it on purpose, and starts with small queries instead."
)
_UNPROBED = (
    "Not given queries and keys of our own: {which}, which makes them itself, one after another or under names that "
    "cannot be reached. Only its weights were read, with the model's own tokens. Not asked there: {names}."
)
_HOW = (
    "Each attention module was given random queries, keys and values, and single tokens were changed; only what came "
    f"out was compared. The exit status is 1 where a law is BROKEN. {command('train')} +bug=NAME trains a model with "
    "one of the mistakes of the lab."
)
