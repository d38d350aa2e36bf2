"""Every file of configs/study can be run as it stands."""

import importlib

import pytest

from minitf.config import check, compose, group_options
from minitf.studies.budget import check_steps
from minitf.studies.study import load

NAMES = group_options("study")


def targets(node):
    if isinstance(node, dict):
        found = [node["_target_"]] if "_target_" in node else []
        return found + [t for child in node.values() for t in targets(child)]
    return [t for child in node for t in targets(child)] if isinstance(node, list) else []


@pytest.mark.parametrize("name", NAMES)
def test_a_study_names_things_that_exist(name):
    study = load(name)
    assert study.question.strip()
    assert study.claim.strip()
    assert study.source.strip()
    for target in targets([study.run or {}, *study.measures.values()]):
        module, _, function = target.rpartition(".")
        assert target.startswith("minitf."), target
        assert callable(getattr(importlib.import_module(module), function)), target


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_each_cell_of_a_study_passes_the_checks_of_a_command_line(name):
    study = load(name)
    if study.run is not None:
        return
    for smoke in (False, True):
        configs = {}
        for cell in study.cells:
            overrides = study.overrides(cell, smoke)
            configs[cell] = compose("train", overrides)
            check(configs[cell], "train", overrides)
            assert configs[cell].trainer.precision == "32-true", f"{name}, {cell}"
        check_steps(study, configs)
