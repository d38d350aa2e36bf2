"""What a study file may say, and what it is told where it may not."""

import pytest
from toy import BASE, toy

from minitf.errors import ConfigError
from minitf.studies.adhoc import cell_name, make_study
from minitf.studies.study import load


def test_factors_are_cells_for_each_combination():
    study = toy(cells={}, factors={"depth": {1: "model.n_layers=1", 2: ["model.n_layers=2"]}, "p": {"rope": None}})
    assert study.cells == {"1, rope": ["model.n_layers=1"], "2, rope": ["model.n_layers=2"]}
    assert study.reference == "1, rope"


def test_of_one_key_the_last_override_counts():
    study = toy(cells={"a": ["optim.lr=1", "trainer.max_steps=9"]}, smoke=["trainer.max_steps=2"])
    assert study.overrides("a").count("trainer.max_steps=9") == 1
    assert not set(study.overrides("a")) & {"trainer.max_steps=6", "trainer.max_steps=2"}
    assert "trainer.max_steps=2" in study.overrides("a", smoke=True)
    assert "trainer.max_steps=4" in toy().overrides("rope", smoke=True)
    assert toy(run={"_target_": "x"}).overrides("rope", smoke=True) == toy().overrides("rope")


def test_some_cells_keep_the_expectations_about_them():
    expect = [{"cell": "rope", "at_least": 0.5}, {"more": "rope", "than": "none, at all"}]
    study = toy(expect=expect).only(["rope"])
    assert [e.kind for e in study.expect] == ["level"]
    assert list(study.cells) == ["rope"]


MISTAKES = [
    ({"quesion": "?"}, "quesion is not known; there are base, budget, cells"),
    ({"cells": {}}, "lacks cells"),
    ({"cells": {"a": {"model": 1}}}, "cells of 'a' must be a list of texts"),
    ({"cells": {"a": [1]}}, "cells of 'a' must be a list of texts"),
    ({"base": 3}, "base must be a list of texts"),
    ({"budget": "time"}, "budget .'time'. must be one of steps, parameters, flops, seconds"),
    ({"seeds": 0}, "seeds .0. must be a whole number of at least 1"),
    ({"expect": [{"cell": "alibi", "at_least": 1}]}, "'alibi' is no cell; there are rope, none, at all"),
    ({"expect": [{"cell": "rope"}]}, "is no expectation"),
    ({"figures": {"alibi": {"loss": [1, 2]}}}, "figures of 'alibi', which is no cell"),
]


@pytest.mark.parametrize(("other", "message"), MISTAKES)
def test_mistakes_are_named(other, message):
    with pytest.raises(ConfigError, match=f"configs/study/toy.yaml.*{message}"):
        toy(**other)


def test_what_is_not_there_is_named():
    with pytest.raises(ConfigError, match="there is no such study"):
        load("nosuchstudy")
    with pytest.raises(ConfigError, match="has no cell 'alibi'; there are rope, none, at all"):
        toy().only(["alibi"])


def test_cells_that_were_typed_have_short_names():
    assert cell_name(["model/position=rope", "optim.lr=0.1"]) == "rope, lr=0.1"
    study = make_study(BASE, [["a.lr=1", "b.lr=2"], ["a.lr=2", "b.lr=1"]], "loss")
    assert list(study.cells) == ["lr=1, lr=2", "lr=2, lr=1"]
    assert make_study(BASE, [["a.lr=1"]], "loss").name != make_study(BASE[1:], [["a.lr=1"]], "loss").name
