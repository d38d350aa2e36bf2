"""demo=blocks names every part, says what it is, and where its mathematics comes from."""

import re

import pytest
from demos import text_of

from minitf.config import config_dir
from minitf.demo.blocks import shown_groups
from minitf.demo.options import Option, group_line, options

# nothing to cite: no mathematics, a matter of course, or minitf's own way to run or to put together
NO_PAPER = {
    "model/mask=causal",
    "model/mask=full",
    "model/norm=none",
    "model/attention/qk_norm=none",
    "model/attention/fast=sdpa",
}
NO_PAPER_GROUPS = {"model", "task", "cache"}
EVERY = [(group, option) for group in shown_groups() for option in options(group)]


@pytest.fixture(scope="module")
def text():
    return text_of("demo=blocks")


def test_it_shows_every_group_of_the_model():
    files = [path.relative_to(config_dir()).parent.as_posix() for path in config_dir().rglob("*.yaml")]
    assert {group for group in files if group.split("/")[0] in ("model", "task", "cache")} == set(shown_groups())


@pytest.mark.parametrize(("group", "option"), EVERY, ids=lambda x: getattr(x, "override", ""))
def test_every_option_is_there_with_a_line_and_a_source(group, option, text):
    assert re.search(rf"^  {re.escape(option.override)}  +\S", text, re.MULTILINE), f"{option.override} is missing"
    assert len(option.line(shared=False)) > 5, f"{option.override}: neither its docstring nor its yaml says what it is"
    if group not in NO_PAPER_GROUPS and option.override not in NO_PAPER:
        told = re.search(r"\b(19|20)\d\d\b|^none, ", option.source)
        assert told, f"{option.override}: no 'Source: author year' in its docstring"


@pytest.mark.parametrize("group", shown_groups())
def test_two_options_of_a_group_never_read_the_same(group, text):
    lines = [line for line in text.splitlines() if line.startswith(f"  {group}=")]
    told = [line.split(maxsplit=1)[1] for line in lines]
    assert len(told) == len(options(group))
    assert len(set(told)) == len(told), f"two options of {group} have one line: {told}"
    assert group_line(group)


def test_one_group_can_be_asked_for():
    shown = text_of("demo=blocks", "demo.group=attention/score")
    assert "model/attention/score=scaled_dot" in shown
    assert "model/mask=" not in shown


def documented(doc: str, comment: str = "") -> Option:
    class Part:
        __doc__ = doc

    return Option("group=part", comment, Part)


def test_line_and_source_are_cut_out_of_a_docstring():
    option = documented("Scores of x. Source: Su et al. 2021 (RoFormer), equation 3.4. More.\n\nArgs:\n    a: b.")
    assert option.line(shared=False) == "Scores of x"
    assert option.source == "Su et al. 2021 (RoFormer), equation 3.4"
    later = documented("As in Vaswani et al. 2017, eq. 1.\n\nDetails.\n\nSource: Ba et al. 2016; gain:\nXu 2019")
    assert later.line(shared=False) == "As in Vaswani et al. 2017, eq. 1"
    assert later.source == "Ba et al. 2016; gain: Xu 2019"
    assert documented("Rows.\n\nSource of tying: Press and Wolf 2017.").source == "Press and Wolf 2017"
    assert documented("Reads a source: what it is.").source == ""


def test_an_option_that_shares_its_class_is_told_by_its_own_file():
    option = documented("Attention. Source: A 2017.", comment="One key head. Source: B 2019.")
    assert option.line(shared=True) == "One key head"
    assert option.line(shared=False) == "Attention"
    assert option.source == "B 2019"
