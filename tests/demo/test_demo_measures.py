"""demo=measures lists what study files can name, as it is."""

import importlib
import inspect
import re

import pytest
from demos import text_of

from minitf.config import group_options
from minitf.demo import measures as demo
from minitf.demo.source import Function, functions
from minitf.errors import ConfigError
from minitf.studies.item import matters
from minitf.studies.study import load

EVERY = {one.target: one for folder in demo.FOLDERS for one in demo.named(folder)}
STUDIES = {name: load(name) for name in group_options("study")}
USED = {
    name: [node["_target_"] for node in (*study.measures.values(), *([study.run] if study.run else []))]
    for name, study in STUDIES.items()
}
SCORES = {"loss", "accuracy"}  # of each training


@pytest.fixture(scope="module")
def text():
    return text_of("demo=measures")


def test_it_fits_a_hundred_columns_and_is_sorted(text):
    assert max(map(len, text.splitlines())) <= demo.WIDTH
    shown = re.findall(r"^minitf\.\S+$", text, re.MULTILINE)
    assert shown == list(EVERY)
    assert shown == sorted(shown)
    assert "\n  arguments  n_batches=4, n_draws=5\n  metrics    full, without_induction, " in text


@pytest.mark.parametrize("name", STUDIES)
def test_what_a_study_names_is_listed_and_says_which_metrics_it_gives(name):
    assert set(USED[name]) <= EVERY.keys()
    given = [shape(metric) for target in USED[name] for metric in demo.metrics(EVERY[target])]
    for metric in set(matters(STUDIES[name])) - SCORES:
        assert any(re.fullmatch(one, metric.removeprefix("start.")) for one in given), metric


def shape(metric: str) -> str:
    """What may stand for the numbers, capitals and roles of a docstring's example."""
    parts = metric.split(".")
    free = [
        re.fullmatch(r"\d+|[A-Z]+|l", part) or parts[:i] in (["accuracy"], ["alarm"]) for i, part in enumerate(parts)
    ]
    return r"\.".join(r"\w+" if any_ else re.escape(part) for part, any_ in zip(parts, free, strict=True))


@pytest.mark.parametrize("target", EVERY)
def test_arguments_and_defaults_are_those_of_the_function(target):
    module, _, name = target.rpartition(".")
    parameters = inspect.signature(getattr(importlib.import_module(module), name)).parameters
    told = EVERY[target].arguments
    assert list(told) == list(parameters)
    for name, parameter in parameters.items():
        default = None if parameter.default is inspect.Parameter.empty else repr(parameter.default)
        assert told[name] == default, name


@pytest.mark.parametrize("target", EVERY)
def test_each_says_what_it_gives_and_of_what(target):
    assert demo.metrics(EVERY[target])
    assert demo.reads(EVERY[target])


def test_helpers_and_private_functions_are_left_out():
    names = {one.target.rpartition(".")[2] for folder in demo.FOLDERS for one in functions(folder)}
    assert {"sample", "layers_of", "second_segment", "crossed"} <= names
    assert not {"sample", "layers_of", "second_segment", "crossed"} & {t.rpartition(".")[2] for t in EVERY}
    assert not [name for name in names if name.startswith("_")]


def test_one_is_shown_in_full_and_several_by_a_part_of_their_names():
    told = text_of("demo=measures", "name=copying.rounds")
    assert told.startswith("minitf.studies.measures.copying.rounds(subject)\n")
    assert "copied_nll - first_nll: below 0 where a model uses what it" in " ".join(told.split())
    assert len(re.findall(r"^minitf\.", text_of("demo=measures", "name=sinks"), re.MULTILINE)) == 3
    with pytest.raises(ConfigError, match=r"name=sink\.sink: there is no such measure or probe; nearest: sinks\.sink"):
        text_of("demo=measures", "name=sink.sink")


def test_a_docstring_is_taken_apart():
    arguments = 'Args:\n    subject: a decoder,\n        small.\n    a, b: "no".'
    doc = f'One line.\n\nMore.\n\n{arguments}\n\nReturns:\n    "x.1", "_y".'
    one = Function("m.f", doc, {"subject": None, "a": "1", "b": "2"}, "dict[str, float]")
    assert (one.line, demo.metrics(one), demo.reads(one)) == ("One line.", ["x.1"], "a decoder, small")
    assert one.told_of("b") == '"no".'
    assert one.told_of("c") == ""
    assert demo.metrics(Function("m.f", 'It is "z".\n\nArgs:\n    a: "no".', {"subject": None}, "")) == ["z"]
