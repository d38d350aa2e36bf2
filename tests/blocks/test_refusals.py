"""What may not be combined is a list; whatever is not on it builds."""

import functools
import importlib
import itertools

import parts
import pytest
from cover import Space, cover
from matrix import AXES, D_MODEL, GROUPS, SIZES
from omegaconf import OmegaConf
from refused import REFUSED, absent, refused

from minitf.config import config_dir
from minitf.errors import ConfigError

INSIDE = ("score", "normalize", "projection", "qk_norm")  # of attention
PRESET = OmegaConf.to_container(parts.node())
AROUND = [key for key in PRESET if (config_dir() / "model" / key).is_dir() and key not in GROUPS]
CHOICES = {
    **{axis: AXES[axis] for axis in (*INSIDE, "position", "mask", "sizes", "bias")},
    "attention": parts.options("model/attention"),
    **{axis: parts.nested(f"model/{axis}") for axis in AROUND},
}


def build_model(cell):
    """A whole decoder; without attention, what is inside of attention has no meaning and is left out."""
    attention = parts.factory("model/attention", cell["attention"])
    if cell["attention"] != "none":
        there = [axis for axis in INSIDE if axis in attention.keywords]
        inside = {axis: parts.factory(GROUPS[axis], cell[axis]) for axis in there}
        if cell["bias"] and "bias" in getattr(inside.get("projection"), "keywords", ()):
            inside["projection"] = functools.partial(inside["projection"], bias=True)
        attention = functools.partial(attention, **inside, **SIZES[cell["sizes"]])
    chosen = {axis: parts.factory(f"model/{axis}", cell[axis]) for axis in ("position", "mask", *AROUND)}
    module, _, name = PRESET["_target_"].rpartition(".")
    plain = {key: value for key, value in PRESET.items() if key not in (*chosen, "_target_")}
    decoder = getattr(importlib.import_module(module), name)
    return decoder(**{**plain, **chosen, "attention": attention, "d_model": D_MODEL, "n_layers": 1})


def test_every_pair_that_is_not_refused_builds():
    failures = []
    for cell in (*cover(CHOICES, refused), *Space(CHOICES, refused).sample(200, seed=0)):
        try:
            build_model(cell)
        except Exception as error:
            failures.append(f"{parts.name(cell)}\n    {type(error).__name__}: {error}")
    assert not failures, "\n".join(failures)


def listed():
    choices = [(axis, value) for axis in CHOICES for value in CHOICES[axis]]
    for refusal in REFUSED:
        for a, b in itertools.product(choices, choices):
            if a[0] == refusal.first[0] and refusal.holds(a, b):
                yield pytest.param(a, b, refusal, id=f"{a[0]}={a[1]}-{b[0]}={b[1]}")


@pytest.mark.parametrize(("a", "b", "refusal"), listed())
def test_every_listed_pair_is_refused_in_one_sentence_that_names_both(a, b, refusal):
    # without attention, what is inside of it is not even built; latent attention has other sizes
    choices = {**CHOICES, "attention": parts.head_counts(), **{axis: [value] for axis, value in (a, b)}}
    space = Space(choices, others(refusal))
    (cell,) = space.sample(1, seed=0)
    with pytest.raises(ConfigError, match=refusal.message):
        build_model(cell)


def others(refusal):
    return lambda a, b: any(one.holds(a, b) for one in REFUSED if one is not refusal) or absent(a, b)


@pytest.mark.parametrize("refusal", REFUSED, ids=lambda refusal: refusal.reason)
def test_every_line_of_the_list_is_about_choices_that_exist(refusal):
    for axis, *ones in (refusal.first, refusal.second):
        assert axis in CHOICES
        for one in ones:
            assert any(
                one == value or (one.endswith("*") and str(value).startswith(one[:-1])) for value in CHOICES[axis]
            )
