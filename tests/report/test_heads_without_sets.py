"""What is said of heads that have a name but cannot be switched off, and of heads without one."""

import pytest

from minitf.analysis.by_role import Answered
from minitf.analysis.findings import Findings
from minitf.analysis.heads.battery import Battery, HeadReport
from minitf.analysis.heads.names import Name
from minitf.analysis.sites import Site
from minitf.errors import ConfigError
from minitf.report.heads_text import table
from minitf.report.seeds_text import check_alike, seeds_table

SITE = Site("cross", 0, "decoder.alignment", 1)
ALIGNS = Name("month", "accuracy:month", 0.9, 0.5)


def findings(names, untrained=3, roles=("month", "year"), data="Dates"):
    head = HeadReport(SITE, 0, {"accuracy:month": 0.9}, {}, {}, {"month": (0, 0.3, 99)}, names, {})
    settings = {"rows": 8, "untrained": untrained, "shuffles": 5}
    about = {"run": "r", "checkpoint": "best", "step": 1, "data": data}
    full = dict.fromkeys(("all", *roles), Answered(1.0, 5, 8))
    return Findings(Battery([head], [], settings), {SITE: (0,)}, "accuracy", full, {}, {}, about)


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (findings((ALIGNS,)), "cannot be switched off"),
        (findings((), untrained=0), "takes untrained models to compare with"),
        (findings(()), "none is above the null models"),
    ],
)
def test_the_reason_for_an_empty_table_is_the_right_one(found, told):
    text = table(found)
    assert told in text
    assert "month: best fixed offset" in text
    assert "costs each role" not in text  # no head was switched off
    assert ("No head has a name" in text) == (not found.battery.heads[0].names)


def test_names_are_compared_across_runs_where_no_effect_is_known():
    text = seeds_table([findings((ALIGNS,)), findings(())])
    row = next(line for line in text.splitlines() if line.strip().startswith("month"))
    assert row.split() == ["month", "1", "of", "2", "cross", "0.0;", "-", "0.900", "to", "0.900", "none", "none"]


@pytest.mark.parametrize("other", [{"roles": ("first", "second")}, {"data": "Reverse"}])
def test_runs_of_other_data_with_the_same_heads_are_refused(other):
    check_alike([findings(()), findings(())])
    with pytest.raises(ConfigError, match=r"answers .*, r Dates \(month, year; accuracy\): others= takes runs of the"):
        check_alike([findings(()), findings((), **other)])
