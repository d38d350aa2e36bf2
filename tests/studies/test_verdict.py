"""Verdicts of results with known numbers."""

import math
from dataclasses import replace

import pytest
from made_studies import CLEAR, EQUAL, MORE, OVERLAP, results, study

from minitf.errors import ConfigError
from minitf.studies.result import Result
from minitf.studies.verdict import judge


def verdict(values, *expect, **more):
    return judge(study(*expect, **more), results(values)).verdict


def pair(with_, without):
    return {"with": with_, "without": without}


@pytest.mark.parametrize(
    ("values", "expect", "wanted"),
    [
        (CLEAR, MORE, "supported"),
        (CLEAR, {**MORE, "by": 0.7}, "supported"),  # 0.8, 0.75, 0.7: the bound itself, but for rounding
        (CLEAR, {**MORE, "by": 0.72}, "undecided"),
        (CLEAR, {**MORE, "by": 0.9}, "refuted"),
        (CLEAR, {"more": "without", "than": "with"}, "refuted"),
        (OVERLAP, MORE, "undecided"),  # every seed agrees, but 0.4 is not above 0.45
        (OVERLAP, {"more": "without", "than": "with"}, "undecided"),
        (OVERLAP, {**MORE, "by": 0.5}, "refuted"),
        (OVERLAP, {**MORE, "by": -0.1}, "supported"),  # not worse: no effect is claimed
        (CLEAR, {"more": "without", "than": "with", "by": -0.1}, "refuted"),
        (EQUAL, MORE, "refuted"),
        (EQUAL, {**MORE, "by": -0.1}, "supported"),
        (EQUAL, {"same": ["with", "without"], "within": 0.0}, "supported"),
        (OVERLAP, {"same": ["with", "without"], "within": 0.2}, "supported"),
        (CLEAR, {"same": ["with", "without"], "within": 0.1}, "refuted"),
        (CLEAR, {"same": ["with", "without"], "within": 0.72}, "undecided"),
        (pair((0.5, 0.9, 0.5), (0.9, 0.5, 0.9)), {"same": ["with", "without"], "within": 0.1}, "undecided"),
        (CLEAR, {"cell": "with", "at_least": 0.9}, "supported"),
        (CLEAR, {"cell": "with", "at_least": 0.93}, "undecided"),
        (CLEAR, {"cell": "with", "at_most": 0.5}, "refuted"),
        (CLEAR, {"cell": "with", "at_least": 0.9, "at_most": 1.0}, "supported"),
        (pair((0.1, 0.9, 0.1), (0, 0, 0)), {"cell": "with", "at_least": 0.4, "at_most": 0.6}, "refuted"),
        (pair((2e-11, 2e-11, 3e-11), (0, 0, 0)), {"cell": "with", "at_most": 1e-12}, "refuted"),  # tiny bounds count
    ],
)
def test_rule_of_one_expectation(values, expect, wanted):
    judgement = judge(study(expect), results(values))
    assert judgement.verdict == judgement.outcomes[0].outcome == wanted


HIGH = (0.9, 0.8, 0.85, 0.95, 0.9, 0.85, 0.35)  # one of seven differs from the others; t interval 0.61 to 0.99
LOW = (0.1, 0.2, 0.1, 0.15, 0.1, 0.2, 0.4)  # differences -0.05 to 0.8, t interval 0.34 to 0.91, p 2/64


@pytest.mark.parametrize(
    ("expect", "wanted"),
    [
        ({"cell": "with", "at_least": 0.6}, "supported"),
        ({"cell": "with", "at_least": 0.65}, "undecided"),
        ({"cell": "with", "at_least": 0.995}, "refuted"),
        ({"cell": "with", "at_least": 0.6, "at_most": 0.9}, "undecided"),
        ({"cell": "with", "at_least": 0.6, "at_most": 1.0}, "supported"),
        ({"cell": "with", "at_most": 0.6}, "refuted"),
        (MORE, "supported"),
        ({**MORE, "by": 0.3}, "supported"),
        ({**MORE, "by": 0.4}, "undecided"),
        ({**MORE, "by": 0.95}, "refuted"),
        ({"more": "without", "than": "with"}, "refuted"),
        ({"more": "without", "than": "with", "by": -0.95}, "supported"),
        ({"same": ["with", "without"], "within": 0.95}, "supported"),
        ({"same": ["with", "without"], "within": 0.5}, "undecided"),
        ({"same": ["with", "without"], "within": 0.3}, "refuted"),
    ],
)
def test_many_seeds_are_judged_by_the_interval_of_their_mean(expect, wanted):
    judgement = judge(study(expect, seeds=7), results(pair(HIGH, LOW)))
    assert judgement.verdict == wanted
    assert "of 7 seeds lies between" in judgement.outcomes[0].why


def test_many_seeds_still_need_a_small_p_or_that_all_agree():
    values = {"a": (9, 9, 9, 9, 9, 9, 9), "b": (1, 2, 3, 4, 5, 6, 7), "c": (1, 2, 3, 4, 5, 6, 7)}
    expect = [{"more": "a", "than": other} for other in "bc"]
    assert judge(study(*expect, cells="abc", seeds=7), results(values)).verdict == "supported"  # p 2 * 2/128
    expect = [{"more": "a", "than": other} for other in "bcde"]

    def of_four(lowest):
        four = {**values, "a": (9, 9, 9, 9, 9, 9, lowest), "d": values["b"], "e": values["b"]}
        return judge(study(*expect, cells="abcde", seeds=7), results(four))

    assert of_four(9).comparisons[0].p_holm == pytest.approx(8 / 128), "as small as four pairs of seven seeds have it"
    assert of_four(9).verdict == "supported", "with fewer seeds it would be"
    assert of_four(6.5).verdict == "undecided", "one seed differs: 6.5 - 7"
    assert "but p is" in of_four(6.5).outcomes[0].why
    equal = judge(study(MORE, seeds=7), results(pair((1,) * 7, (1,) * 7)))
    assert equal.verdict == "refuted"


def test_deciding_numbers():
    made = judge(study(MORE, {"same": ["with", "without"], "within": 0.1}), results(CLEAR))
    (first,), outcome = made.comparisons, made.outcomes[0]
    assert outcome.values == {cell: dict(enumerate(of)) for cell, of in CLEAR.items()}
    assert outcome.comparison == first
    assert first.differences == pytest.approx({0: 0.8, 1: 0.75, 2: 0.7})
    assert (first.mean, first.low, first.high) == pytest.approx((0.75, 0.7, 0.8))
    assert (first.p, first.p_holm, first.least_p) == (0.25, 0.25, 0.25)  # two expectations, but one comparison
    assert first.effect == pytest.approx(0.75 / 0.05 / math.sqrt(math.pi))
    assert first.detectable == pytest.approx(0.05 * 3.264, abs=1e-4)
    assert first.apart == 1
    assert (made.seeds, made.seconds, made.problems) == ((0, 1, 2), 12.0, ())


def test_holm_counts_the_comparisons_of_the_study():
    values = {"a": (9, 9, 9, 9, 9, 9), "b": (1, 2, 3, 4, 5, 6), "c": (0, 9, 1, 9, 1, 9)}
    expect = [{"more": "a", "than": "b"}, {"more": "a", "than": "c"}]
    made = judge(study(*expect, cells="abc", seeds=6), results(values))
    assert [c.p for c in made.comparisons] == pytest.approx([2 / 64, 16 / 64])
    assert [c.p_holm for c in made.comparisons] == pytest.approx([4 / 64, 16 / 64])


YES, NO = {"cell": "with", "at_least": 0.5}, {"cell": "without", "at_least": 0.5}
OPEN = {"cell": "with", "at_least": 0.93}


@pytest.mark.parametrize(
    ("expect", "wanted"),
    [
        ([YES, MORE], "supported"),
        ([NO, NO], "refuted"),
        ([{**YES, "when": "with it"}, {**NO, "when": "without it"}], "supported under condition"),
        ([YES, OPEN], "undecided"),
        ([YES, NO], "refuted"),
        ([YES, NO, OPEN], "refuted"),
        ([{**YES, "when": "with it"}, {**NO, "when": "with it"}], "refuted"),
        ([{**YES, "when": "with it"}, {**OPEN, "when": "without it"}], "undecided"),
        ([{**NO, "when": "with it"}, {**OPEN, "when": "without it"}], "undecided"),
        ([{**YES, "when": "with it"}, {**NO, "when": "without it"}, OPEN], "undecided"),
        ([{**NO, "when": "with it"}, {**NO, "when": "without it"}, YES], "refuted"),
        ([{**YES, "control": True}, NO], "refuted"),
        ([YES, {**NO, "control": True}], "undecided"),
        ([YES, {**OPEN, "control": True}], "undecided"),
        ([{**YES, "control": True}], "no claim"),
        ([], "no claim"),
    ],
)
def test_rule_of_the_study(expect, wanted):
    made = judge(study(*expect), results(CLEAR))
    assert made.verdict == wanted
    if wanted == "supported under condition":
        assert made.why == "with it | refuted: without it"


def test_what_is_not_whole_is_never_supported():
    whole = results(CLEAR)
    failed = [*whole[:-1], Result("made", "without", 2, error="DataError: diverged")]
    for got, told in {
        "failed": (failed, "without: failed with seed 2: DataError: diverged"),
        "missing": (whole[:-1], "without: seed 2 is missing"),
        "NaN": ([*whole[:-1], replace(whole[-1], scores={"accuracy": math.nan})], "accuracy is not finite with seed 2"),
        "infinite": ([*whole[:-1], replace(whole[-1], scores={"accuracy": -math.inf})], "not finite with seed 2"),
        "without": ([*whole[:-1], replace(whole[-1], scores={"loss": 1.0})], "without: no accuracy with seed 2"),
        "nothing": ([], "with: seed 0, 1, 2 is missing"),
    }.values():
        for expect in (MORE, {"same": ["with", "without"], "within": 0.1}):
            made = judge(study(expect), got)
            assert made.verdict == made.outcomes[0].outcome == "undecided"
            assert told in made.outcomes[0].why


def test_a_cell_that_nobody_asks_about_must_be_whole_too():
    made = judge(study(YES), results({"with": CLEAR["with"]}))
    assert made.outcomes[0].outcome == "supported"
    assert made.verdict == "undecided"
    assert made.why == "incomplete: without: seed 0, 1, 2 is missing"


def test_fewer_than_three_seeds_and_smoke():
    two = {cell: of[:2] for cell, of in CLEAR.items()}
    assert verdict(two, MORE, seeds=2) == "undecided"
    one = {cell: of[:1] for cell, of in CLEAR.items()}
    made = judge(study(MORE, seeds=1), results(one), smoke=True)
    assert made.verdict == made.outcomes[0].outcome == "not judged"
    assert math.isnan(made.comparisons[0].low)


def test_a_trial_may_lack_a_metric():
    e = {"cell": "with", "metric": "heads", "at_least": 1}
    made = judge(study(e, seeds=1), results({cell: of[:1] for cell, of in CLEAR.items()}), smoke=True)
    assert made.verdict == "not judged"
    with pytest.raises(ConfigError, match="no result has the metric 'heads'; there are accuracy"):
        judge(study(e), results(CLEAR))


def test_a_metric_that_was_measured_only_on_the_way_is_told_so():
    only_before = [replace(r, scores={**r.scores, "start.heads": 1.0}) for r in results(CLEAR)]
    on_the_way = [replace(r, courses={"heads": [(0, 1.0), (5, 2.0), (9, 3.0)]}) for r in results(CLEAR)]
    for found in (on_the_way, only_before):
        with pytest.raises(ConfigError, match="'heads' was measured on the way, but not after the last step"):
            judge(study({"cell": "with", "metric": "heads", "at_least": 1}), found)


def test_a_later_result_replaces_an_earlier_one_and_strange_cells_are_left_out():
    stale = [Result("made", "with", 0, error="killed"), Result("made", "gone", 0, {"accuracy": 0.0})]
    assert judge(study(MORE), [*stale, *results(CLEAR)]).verdict == "supported"


@pytest.mark.parametrize(
    "made",
    [
        study({**MORE, "metric": "acuracy"}),
        study(metric="acuracy"),
        study(MORE, figures={"with": {"acuracy": [0, 1]}}),
    ],
)
def test_a_metric_that_is_nowhere_is_a_mistake(made):
    with pytest.raises(ConfigError, match="no result has the metric 'acuracy'; there are accuracy, loss"):
        judge(made, results(CLEAR))
    failed = [*results(CLEAR)[:-1], Result("made", "without", 2, error="no")]  # that cell may be the one that has it
    assert judge(made, failed).verdict in ("undecided", "no claim")


def test_without_expectations_cells_are_compared_and_the_answer_is_said():
    values = {"a": (1, 1, 1), "b": (2, 2.5, 2), "c": (0, 1, 2)}
    made = judge(study(cells="abc"), results(values))
    assert made.verdict == "no claim"
    seen = [(c.cells, c.apart) for c in made.comparisons]
    assert seen == [(("b", "a"), 1), (("c", "a"), 0), (("c", "b"), 0)]
    assert made.why.split("; ") == [
        "accuracy of b is above that of a by 1 .. 1.5",
        "accuracy of c and of a: no clear difference",
        "accuracy of c and of b: no clear difference",
    ]
    two = judge(study(cells="abc", seeds=2), results({cell: of[:2] for cell, of in values.items()}))
    assert two.why.startswith("b and a: 2 seeds are too few")
    assert "nothing to compare" in judge(study(cells="a"), results({"a": (1, 1, 1)})).why
    many = judge(study(cells="abcdef"), results(dict.fromkeys("abcdef", (1, 2, 3))))
    assert [c.cells for c in many.comparisons] == [(cell, "a") for cell in "bcdef"]


def test_an_answer_of_many_seeds_says_where_single_ones_differ():
    made = judge(study(seeds=9), results(pair((0.4, *[-1.0] * 8), (0.0,) * 9)))
    below = "accuracy of without is above that of with on average (+0.8444; of single seeds -0.4 .. +1)"
    assert made.why == below
    tall = {cell: (1.0 if cell == "f" else 0.0,) * 7 for cell in "abcdef"}
    assert "of f is above that of a by 1 .. 1" in judge(study(cells="abcdef", seeds=7), results(tall)).why


def test_some_cells_of_a_study_are_no_verdict_about_its_claim():
    whole = study(MORE, {"more": "other", "than": "without"}, cells=["with", "without", "other"])
    made = judge(whole.only(["with", "without"]), results(CLEAR))
    assert made.verdict == "not judged"
    assert made.why == "only 2 of 3 cells; of the expectations that speak of no other cell: 1 supported"
    assert [o.outcome for o in made.outcomes] == ["supported"]
    assert (
        judge(whole.only(["with", "without", "other"]), results({**CLEAR, "other": (1, 1, 1)})).verdict == "supported"
    )


def test_an_effect_that_is_too_small_is_told_apart_from_none():
    made = judge(study({**MORE, "by": 0.9}), results(CLEAR))
    assert (made.verdict, made.outcomes[0].why) == (
        "refuted",
        "no seed as far apart as expected, though more in every seed, by 0.7 .. 0.8",
    )
    assert "though" not in judge(study({"more": "without", "than": "with", "by": 0.9}), results(CLEAR)).outcomes[0].why


def test_a_figure_outside_says_whether_seeds_overlap_and_why():
    spreads = {"with": {"accuracy": (0.98, 1.0)}, "without": {"accuracy": (0.5, 0.6)}}
    why = [{"cells": ["with", "without"], "metrics": ["accuracy"], "why": "Other data."}]
    first, second = judge(study(MORE, figures=spreads, differences=why), results(CLEAR)).figures
    assert (first.place, first.apart, first.why) == ("outside", False, "Other data.")
    assert (second.place, second.apart, second.why) == ("outside", True, "Other data.")
    why[0]["cells"] = ["with"]
    (inside,) = judge(study(MORE, figures={"with": {"accuracy": (0.9, 1)}}, differences=why), results(CLEAR)).figures
    assert inside.why == ""
    with pytest.raises(ConfigError, match="speak of 'with', which has no figure"):
        study(MORE, differences=why)


@pytest.mark.parametrize(
    ("spread", "place", "n_inside"),
    [
        ((0.9, 1.0), "inside", 3),
        ((0.94, 0.96), "inside", 1),
        ((0.96, 1.0), "near", 1),  # 0.95 lies 0.01 below; half the width is 0.02
        ((0.96, 0.96), "near", 0),  # no width: 2 % of the value
        ((0.98, 1.0), "outside", 1),
        ((0.5, 0.6), "outside", 0),
    ],
)
def test_figures_beside_those_found_before(spread, place, n_inside):
    (figure,) = judge(study(MORE, figures={"with": {"accuracy": spread}}), results(CLEAR)).figures
    assert (figure.place, figure.n_inside, figure.n) == (place, n_inside, 3)
    assert figure.mean == pytest.approx(0.95)


def test_a_figure_without_values_is_missing():
    got = [*results({"without": CLEAR["without"]}), Result("made", "with", 0, error="no")]
    (figure,) = judge(study(MORE, figures={"with": {"accuracy": [0, 1]}}), got).figures
    assert (figure.place, figure.n) == ("missing", 0)
