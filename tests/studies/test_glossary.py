"""Every metric that a study names is explained in one line, and nothing else is."""

from pathlib import Path

import pytest
import yaml

from minitf.config import group_options
from minitf.studies import glossary
from minitf.studies.item import matters
from minitf.studies.study import load

SCORES = {"loss", "accuracy", "exact", "bits_per_byte"}  # of all training: compared with over=... and runs=...
NAMED = {name: matters(load(name)) for name in group_options("study")}
EVERYWHERE, OF_STUDY = glossary.known()


@pytest.mark.parametrize("study", NAMED)
def test_every_metric_of_a_study_has_a_meaning(study):
    for metric in NAMED[study]:
        assert 10 < len(glossary.meaning(metric, study)) < 130, metric


def test_every_line_is_about_a_metric_that_some_study_names():
    used = {(study, *glossary.entry(metric, study)) for study, metrics in NAMED.items() for metric in metrics}
    assert set(EVERYWHERE) - SCORES <= {key for _, key, _ in used}
    for study, own in OF_STUDY.items():
        assert {(study, key, told) for key, told in own.items()} <= used


def test_lines_are_short_texts_and_no_key_comes_twice():
    text = Path(glossary.__file__).with_name("metrics.yaml").read_text(encoding="utf-8")
    keys = [line.partition(":")[0].strip() for line in text.splitlines() if line[:1] == " " and ": " in line]
    assert len(set(keys)) == len(EVERYWHERE)  # a key that comes twice is lost when it is read
    assert len(keys) == len(EVERYWHERE) + sum(map(len, OF_STUDY.values()))
    for told in [*EVERYWHERE.values(), *(told for own in OF_STUDY.values() for told in own.values())]:
        assert isinstance(told, str)
        assert len(told) <= 115, told
        assert told == told.rstrip(".")
    assert yaml.safe_load(text).keys() == {"metrics", "studies"}


def test_patterns_beginnings_and_studies_are_told_apart():
    assert "so many tokens (more" in glossary.meaning("accuracy.16")
    assert "this role" in glossary.meaning("accuracy.back_1")
    assert glossary.meaning("start.js") == f"before training: {glossary.meaning('js')}"
    assert glossary.meaning("gradient_w_q") != glossary.meaning("gradient_mean")
    assert glossary.meaning("sink_dormant", "sink_repeat") != glossary.meaning("sink_dormant", "sink")
    assert glossary.meaning("nonsense") == glossary.meaning("start.nonsense") == ""
