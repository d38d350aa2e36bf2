"""What a study file may say, and what it is told where it may not."""

import math
import re
import shlex

import pytest
from toy import BASE, toy

from minitf.config import compose
from minitf.errors import ConfigError
from minitf.studies.adhoc import cell_name, make_study
from minitf.studies.study import load, read


def test_factors_are_cells_for_each_combination():
    study = toy(cells={}, factors={"depth": {1: "model.n_layers=1", 2: ["model.n_layers=2"]}, "p": {"rope": None}})
    assert study.cells == {"1, rope": ["model.n_layers=1"], "2, rope": ["model.n_layers=2"]}
    assert study.reference == "1, rope"


def test_names_that_are_numbers_are_texts_wherever_they_stand():
    study = toy(
        cells={1: [], 0.5: ["x=1"]},
        expect=[{"more": 0.5, "than": 1}, {"same": [1, "0.5"], "within": 2}],
        figures={1: {"accuracy": [0, 1]}},
        differences=[{"cells": [1], "metrics": ["accuracy"], "why": "?"}],
    )
    assert list(study.cells) == ["1", "0.5"]
    assert [e.cells for e in study.expect] == [("0.5", "1"), ("1", "0.5")]
    assert study.differences[0].cells == ("1",)
    assert list(study.only([1]).cells) == ["1"]


def test_factors_are_named_for_each_level_in_a_name():
    two = {"own V, W_Q": ["x=1"], "K = V, W_Q": ["x=2"]}
    assert toy(cells={}, factors={"p": two, "score": {"dot": []}}).factors == ("p 1", "p 2", "score")
    assert toy().factors == ()
    typed = [[f"model/ffn={a}", f"model/position={b}"] for a in ("none", "gelu") for b in ("none", "rope")]
    assert make_study(BASE, typed, "loss").factors == ("ffn", "position")
    typed = [[f"a.lr={a}", f"b.lr={b}"] for a in (1, 2) for b in (1, 2)]
    assert make_study(BASE, typed, "loss").factors == ("a.lr", "b.lr")
    assert make_study(BASE, [["model/ffn=none", "a.lr=1"], ["model/ffn=gelu", "a.lr=1"]], "loss").factors == ()


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


LEVEL, MORE, SAME = {"cell": "rope", "at_least": 1}, {"more": "rope", "than": "none, at all"}, ["rope", "none, at all"]
FIGURES = {"rope": {"loss": [1, 2]}}
MISTAKES = [
    ({"quesion": "?"}, "quesion is not known; there are base, budget, cells"),
    ({"claim": ""}, "claim ('') must be a text"),
    ({"question": None}, "question (None) must be a text"),
    ({"source": " "}, "source (' ') must be a text"),
    ({"metric": ["loss"]}, "metric (['loss']) must be a text"),
    ({"cells": {}}, "lacks cells"),
    ({"cells": ["a", "b"]}, "cells (['a', 'b']) must be a mapping"),
    ({"cells": {"a": {"model": 1}}}, "cells of 'a' must be a list of texts"),
    ({"cells": {"a": [1]}}, "cells of 'a' must be a list of texts"),
    ({"cells": {"a": ["x=1", "y=1", "+x=2"]}}, "cells of 'a' gives x 2 times (x=1, +x=2): it must be there once"),
    ({"cells": {"a": ["x=1", "seed=3"]}}, "cells of 'a' says 'seed=3', but the seeds of a study are counted"),
    ({"cells": {1: "x=1", "1": "x=2"}}, "'1' is there 2 times"),
    ({"cells": {True: "x=1"}}, "cells has the name True. YAML reads on, yes and true so: put the name in quotes"),
    ({"factors": {"p": {False: "x=1"}}}, "factors: p has the name False. YAML reads off, no and false so"),
    ({"cells": {None: "x=1"}}, "cells has the name None. YAML reads null, ~ and an empty name so"),
    ({"factors": ["a"]}, "factors (['a']) must be a mapping"),
    ({"factors": {"depth": ["x=1"]}}, "factors.depth (['x=1']) must be a mapping"),
    ({"factors": {"depth": {}}}, "factors.depth ({}) must have at least one level"),
    ({"factors": {"depth": {"a": ["x=1", "x=2"]}}}, "factors of 'a' gives x 2 times"),
    ({"factors": {"p": {"rope": []}}}, "two cells the name 'rope'"),
    ({"base": 3}, "base must be a list of texts"),
    ({"base": {}}, "base must be a list of texts"),
    ({"base": ["++seed=1"]}, "base says '++seed=1', but the seeds of a study are counted"),
    ({"smoke": ["seed=1"]}, "smoke says 'seed=1', but the seeds of a study are counted"),
    ({"budget": "time"}, "budget ('time') must be one of steps, parameters, flops, seconds"),
    ({"seeds": 0}, "seeds (0) must be a whole number of at least 1"),
    ({"seeds": True}, "seeds (True) must be a whole number of at least 1"),
    ({"takes_long": 1}, "takes_long (1) must be true or false"),
    ({"run": "a.b"}, "run ('a.b') must be a mapping"),
    ({"run": {"length": 3}}, "run ({'length': 3}) must have a text _target_"),
    ({"run": {"_target_": "x.y", "seed": 3}}, "run says seed, but the seeds of a study are counted"),
    ({"measures": ["a.b"]}, "measures (['a.b']) must be a mapping"),
    ({"measures": {"m": "a.b"}}, "measures.m ('a.b') must be a mapping"),
    ({"measures": {"m": {"_target_": 3}}}, "measures.m ({'_target_': 3}) must have a text _target_"),
    ({"measures": {"m": {"_target_": "a.b", "at": 3}}}, "measures.m: at (3) must be end, start, or a list of steps"),
    ({"expect": None}, "expect (None) must be a list of expectations"),
    ({"expect": LEVEL}, "must be a list of expectations"),
    ({"expect": ["rope"]}, "'rope' is no expectation"),
    ({"expect": [{"cell": "rope"}]}, "is no expectation"),
    ({"expect": [{**LEVEL, "cell": "alibi"}]}, "'alibi' is no cell; there are 'rope', 'none, at all'"),
    ({"expect": [{**LEVEL, "cell": ["rope"]}]}, "['rope'] is no cell; there are 'rope', 'none, at all'"),
    ({"expect": [{**LEVEL, "cell": True}]}, "there are 'rope', 'none, at all'. YAML reads on, yes and true so"),
    ({"expect": [{**LEVEL, "at_least": None}]}, "at_least (None) must be a number"),
    ({"expect": [{**LEVEL, "at_least": True}]}, "at_least (True) must be a number"),
    ({"expect": [{"cell": "rope", "at_most": math.nan}]}, "at_most (nan) must be a number"),
    ({"expect": [{**LEVEL, "at_least": 5, "at_most": 1}]}, "at_least (5) must not be above at_most (1)"),
    ({"expect": [{"more": "rope", "than": "rope"}]}, "'rope' is compared with itself"),
    ({"expect": [{**MORE, "by": "0.2"}]}, "by ('0.2') must be a number"),
    ({"expect": [{"same": ["rope", "rope"], "within": 1}]}, "'rope' is compared with itself"),
    ({"expect": [{"same": ["rope"], "within": 1}]}, "same (['rope']) must be a list of two cells"),
    ({"expect": [{"same": "ab", "within": 1}]}, "same ('ab') must be a list of two cells"),
    ({"expect": [{"same": SAME, "within": -1}]}, "within (-1) must be a number of at least 0"),
    ({"expect": [{"same": SAME, "within": [1]}]}, "within ([1]) must be a number"),
    ({"expect": [{**LEVEL, "when": 3}]}, "when (3) must be a text"),
    ({"expect": [{**LEVEL, "says": None}]}, "says (None) must be a text"),
    ({"expect": [{**LEVEL, "metric": ""}]}, "metric ('') must be a text"),
    ({"expect": [{**LEVEL, "control": "yes"}]}, "control is true or false"),
    ({"figures": [1]}, "figures ([1]) must be a mapping"),
    ({"figures": {"alibi": {"loss": [1, 2]}}}, "figures of 'alibi', which is no cell"),
    ({"figures": {"rope": [1, 2]}}, "figures of 'rope' ([1, 2]) must be a mapping"),
    ({"figures": {"rope": {"loss": 1}}}, "figures of 'rope': loss (1) must be two numbers, [lowest, highest]"),
    ({"figures": {"rope": {"loss": [1, "b"]}}}, "figures of 'rope': loss ('b') must be a number"),
    ({"figures": {"rope": {"loss": [2, 1]}}}, "loss ([2, 1]) must have the lowest number first"),
    ({"differences": None}, "differences (None) must be a list"),
    ({"differences": [3]}, "differences are lists of cells, metrics and why, got 3"),
    ({"figures": FIGURES, "differences": [{"cells": [], "metrics": ["loss"], "why": "?"}]}, "at least one cell"),
    ({"figures": FIGURES, "differences": [{"cells": "rope", "metrics": "loss", "why": 3}]}, "why (3) must be a text"),
]


@pytest.mark.parametrize(("other", "message"), MISTAKES, ids=lambda value: value if isinstance(value, str) else "")
def test_mistakes_are_named(other, message):
    with pytest.raises(ConfigError, match=f"configs/study/toy.yaml.*{re.escape(message)}"):
        toy(**other)


def test_a_file_that_is_empty_or_lacks_a_key_is_named():
    with pytest.raises(ConfigError, match=r"toy\.yaml must be a mapping of question, claim, source, metric"):
        read("toy", None)
    with pytest.raises(ConfigError, match=r"toy\.yaml lacks claim"):
        read("toy", {"question": "?", "cells": {"a": []}})


def test_what_is_at_the_edge_is_allowed():
    study = toy(
        expect=[{**LEVEL, "at_most": 1}, {**MORE, "by": -0.1}, {"same": SAME, "within": 0}],
        figures={"rope": {"loss": [1, 1]}},
        factors={"x": {"one": ["a=1"]}, "y": {"two": ["a=2"]}},
    )
    assert [(e.low, e.high) for e in study.expect] == [(1, 1), (-0.1, None), (None, 0)]
    assert study.figures == {"rope": {"loss": (1.0, 1.0)}}
    assert study.overrides("one, two")[-1] == "a=2"


def test_what_is_not_there_is_named():
    with pytest.raises(ConfigError, match="there is no such study"):
        load("nosuchstudy")
    with pytest.raises(ConfigError, match="has no cell 'alibi'; there are 'rope', 'none, at all'"):
        toy().only(["alibi"])


@pytest.mark.parametrize("name", ["d 16, scaled", 'more=["x=1"], b', "it's", "1"])
def test_a_cell_that_is_typed_as_the_message_says_is_found(name):
    study = toy(cells={name: []})
    with pytest.raises(ConfigError) as found:
        study.only(["alibi"])
    (typed,) = shlex.split(str(found.value).partition("typed so: ")[2])
    assert list(study.only(list(compose("ablate", [typed]).cells)).cells) == [name]


def test_cells_that_were_typed_have_short_names():
    assert cell_name(["model/position=rope", "optim.lr=0.1"]) == "rope, lr=0.1"
    study = make_study(BASE, [["a.lr=1", "b.lr=2"], ["a.lr=2", "b.lr=1"]], "loss")
    assert list(study.cells) == ["lr=1, lr=2", "lr=2, lr=1"]
    assert make_study(BASE, [["a.lr=1"]], "loss").name != make_study(BASE[1:], [["a.lr=1"]], "loss").name
