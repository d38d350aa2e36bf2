"""The study file that the README shows is read, runs as it stands, and its tables name every key."""

import re
import textwrap
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from minitf.config import check, compose
from minitf.studies.budget import check_steps
from minitf.studies.form import BUDGETS, KINDS, SHARED
from minitf.studies.glossary import meaning
from minitf.studies.item import matters
from minitf.studies.study import Study, read

TEXT = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def section() -> str:
    found = re.search(r"^#+ A study of your own\n(.*?)(?=^#|\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found, "README.md has no section 'A study of your own'"
    return found[1]


@pytest.fixture(scope="module")
def study(section) -> Study:
    (block,) = re.findall(r"^    question: .*\n(?:    .*\n)+", section, re.MULTILINE)
    return read("readme", OmegaConf.to_container(OmegaConf.create(textwrap.dedent(block))))


def test_it_is_a_study_with_a_control_conditions_and_a_measure(study):
    assert len(study.cells) > 1
    assert any(e.control for e in study.expect)
    assert len({e.when for e in study.expect if not e.control}) > 1
    assert study.measures
    assert all(meaning(metric) for metric in matters(study))


def test_its_cells_pass_the_checks_of_a_command_line(study):
    configs = {cell: compose("train", study.overrides(cell)) for cell in study.cells}
    for cell, config in configs.items():
        check(config, "train", study.overrides(cell))
    check_steps(study, configs)


def test_the_tables_name_every_key(section):
    named = set(re.findall(r"`([a-z_]+)(?:: true)?`|[{`,] ?([a-z_]+): ", section))
    named = {one or other for one, other in named}
    keys = {*Study.__dataclass_fields__, "factors", "at", *BUDGETS, *SHARED}
    keys |= {key for must, may in KINDS.values() for key in must | may}
    assert keys - {"name", "left_out", "under"} <= named  # not of a file
