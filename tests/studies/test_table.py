"""Tables of judged studies: aligned, complete, inside the width, strict JSON."""

import json
import math
from dataclasses import replace

import pytest
from made_studies import CLEAR, EQUAL, MORE, OVERLAP, results, study

from minitf.report.studies import write_page
from minitf.studies.item import Item, as_data, say, short
from minitf.studies.result import Result
from minitf.studies.table import COMPARED, WIDTH, folder, markdown, overview, text
from minitf.studies.verdict import judge


def item(made, got, smoke=False):
    return Item(made, got, judge(made, got, smoke), f"python scripts/ablate.py study={made.name}")


def shown(made, got):
    i = item(made, got)
    return text(i.study, i.results, i.judgement, i.command)


FIGURES = {"with": {"accuracy": [0.9, 1.0]}, "without": {"accuracy": [0.5, 0.6]}}


def test_one_study_in_full():
    told = shown(study(MORE, figures=FIGURES, covers=["C4", "T8"]), results(CLEAR)).splitlines()
    assert told == [
        "Study made",
        "  question Does it need this?",
        "  claim    It does.",
        "  source   widely repeated in tutorials",
        "  decides  C4, T8",
        "",
        "accuracy (decides)",
        "  share of the validation answers that are right, 0 to 1",
        "  cell     seed 0  seed 1  seed 2  mean  found before",
        "  with        0.9    0.95       1  0.95  0.9 .. 1 inside",
        "  without     0.1     0.2     0.3   0.2  0.5 .. 0.6 outside",
        "",
        "Expected",
        "  supported  accuracy of with: more than of without: every seed in the expected order",
        "",
        "Outside what was found before (the mean is more than half the earlier range, or 2 %, beyond it)",
        "  accuracy of without: 0.2, before 0.5 .. 0.6, all seeds beyond it. Why is not known.",
        "",
        *COMPARED,
        "  accuracy: with - without",
        "      differences +0.8, +0.75, +0.7; mean +0.75 [+0.7, +0.8]; p 0.25 (corrected 0.25, least possible 0.25);",
        "      effect +8.46; detectable 0.1632; no overlap",
        "",
        "Verdict: supported (1 of 1 expectations supported)",
        "3 seeds, 12 s of CPU: python scripts/ablate.py study=made",
    ]


def test_what_is_not_whole_is_shown_in_its_place():
    got = [*results(CLEAR)[:-2], Result("made", "without", 2, error="DataError: diverged")]
    got[0] = replace(got[0], scores={"accuracy": math.nan, "loss": 1.0})
    told = shown(study(MORE), got)
    rows = [line.split() for line in told.splitlines()]
    assert ["with", "nan", "0.95", "1", "0.975"] in rows
    assert ["without", "0.1", "missing", "failed", "0.1"] in rows
    assert "without: failed with seed 2: DataError: diverged" in told
    assert "with: accuracy with seed 0 is nan" in told
    assert "Verdict: undecided" in told


def test_a_cell_without_a_metric_has_no_row_of_it():
    got = [Result("made", "with", seed, {"accuracy": 0.9, "only": 0.5}) for seed in range(3)]
    got += results({"without": CLEAR["without"]})
    data = as_data(item(study(MORE, {"cell": "with", "metric": "only", "at_least": 0.5}), got))
    assert data["verdict"] == "supported"
    assert [[row["cell"] for row in m["rows"]] for m in data["metrics"]] == [["with", "without"], ["with"]]


def test_ad_hoc_shows_differences_to_the_first_cell():
    told = shown(study(cells="abc"), results({"a": (1, 1, 1), "b": (2, 2, 2), "c": (0, 1, 2)}))
    assert "Expected" not in told
    assert "  accuracy: b - a\n      differences +1, +1, +1; mean +1 [+1, +1];" in told
    assert "effect: no spread; detectable 0; no overlap" in " ".join(told.split())
    assert "  accuracy: c - a\n" in told


SWITCHES = {"first": {"off": [], "on": ["x=1"]}, "second": {"off": [], "on": ["y=1"]}, "size": {"8": ["z=8"]}}


def additive(cells):
    """0.7, 0.1 more with the first switch on and 0.03 with the second, for three seeds."""
    added = [
        sum(of for of, level in zip((0.1, 0.03), cell.split(", "), strict=False) if level == "on") for cell in cells
    ]
    return {cell: [0.7 + more + seed / 100 for seed in range(3)] for cell, more in zip(cells, added, strict=True)}


def test_effects_name_their_factors_and_leave_one_of_one_level_out(tmp_path):
    made = study(cells=[], claim="?", factors=SWITCHES)
    i = item(made, results(additive(made.cells)))
    told = shown(made, i.results).partition("What each factor does to accuracy")[2]
    assert "  first: on - off\n      differences +0.1, +0.1, +0.1;" in told
    assert "  second: on - off\n      differences +0.03, +0.03, +0.03;" in told
    assert "  first, second: on beside on - on beside off\n      differences +0, +0, +0;" in told
    assert "8" not in told.partition("Answer")[0]
    assert [e["factors"] for e in as_data(i)["effects"]] == [["first"], ["second"], ["first", "second"]]
    write_page([as_data(i)], tmp_path / "page.html")
    assert ">first, second: on beside on − on beside off<" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_rounding_has_no_statistics():
    made = study(cells=[], claim="?", factors=SWITCHES)
    interaction = as_data(item(made, results(additive(made.cells))))["effects"][-1]
    assert [interaction[name] for name in ("differences", "p", "effect", "apart")] == [[0, 0, 0], 1, 0, 0]
    small = {cell: [1000 / 3 + v * 1e-6 for v in of] for cell, of in additive(made.cells).items()}
    first, _, interaction = as_data(item(made, results(small)))["effects"]
    assert first["differences"] == pytest.approx([1e-7] * 3, rel=1e-3)
    assert interaction["differences"] == [0, 0, 0]  # beside the effects alone it would be no rounding
    made = study(MORE)
    near = item(made, results({"with": [0.1 + 0.2] * 3, "without": [0.3] * 3}))
    assert [(c.p, c.apart) for c in near.judgement.comparisons] == [(1, 0)]
    assert near.judgement.verdict == "refuted"


@pytest.mark.parametrize("n_seeds", [1, 2, 3, 9, 20])
def test_every_value_is_there_and_no_line_is_too_long(n_seeds):
    cells = ["a very long name of a cell, that goes on for a while, and then some more of it", "b" * 60, "c"]
    values = {cell: [i + seed / 1000 + 0.1234 for seed in range(n_seeds)] for i, cell in enumerate(cells)}
    expect = [{"more": cells[1], "than": cells[0], "by": 0.5, "when": "the sky is blue " * 8}]
    made = study(*expect, cells=cells, seeds=n_seeds, claim="word " * 80, figures={cells[0]: {"accuracy": [0.1, 0.2]}})
    told = shown(made, results(values)) + overview([item(made, results(values))])
    assert max(map(len, told.splitlines())) <= WIDTH
    for of in values.values():
        for value in of:
            assert f" {short(value)}" in told


def test_overview_and_markdown():
    first = item(study(MORE), results(CLEAR))
    conditional = [{"cell": "with", "at_least": 0.5, "when": "it is | on <b>"}]
    conditional.append({"cell": "without", "at_least": 0.5, "when": "it is off"})
    second = item(study(*conditional), results(CLEAR))
    told = overview([first, second])
    assert "supported    accuracy: with 0.9 .. 1 against" in told
    assert "    python scripts/ablate.py study=made\n" in told
    assert told.endswith("2 studies: 1 supported, 1 supported under condition; 24 s of CPU\n")
    lines = markdown([first, second]).splitlines()
    assert lines[0] == "| study | claim | verdict | deciding numbers | seeds | CPU s | command |"
    assert lines[2] == (
        "| made | It does. | supported | accuracy: with 0.9 .. 1 against without 0.1 .. 0.3 | 3 | 12 | "
        "`python scripts/ablate.py study=made` |"
    )
    assert "supported under condition: it is \\| on \\<b>" in lines[3]
    assert "accuracy: with 0.9 .. 1 (supported)<br>accuracy: without 0.1 .. 0.3 (refuted)" in lines[3]


def test_expectations_in_words():
    made = study(
        MORE,
        {**MORE, "by": 0.2},
        {**MORE, "by": -0.1},
        {"same": ["with", "without"], "within": 0.1},
        {"cell": "with", "at_least": 0.0},
        {"cell": "with", "at_least": 0.1, "at_most": 0.2},
    )
    assert [say(e) for e in made.expect] == [
        "accuracy of with: more than of without",
        "accuracy of with: at least 0.2 more than of without",
        "accuracy of with: at most 0.1 less than of without",
        "accuracy of with and of without: within 0.1",
        "accuracy of with: at least 0",
        "accuracy of with: in 0.1 .. 0.2",
    ]


@pytest.mark.parametrize("values", [CLEAR, OVERLAP, EQUAL, {"with": (math.nan, math.inf, 1.0)}])
def test_folder_holds_strict_json(tmp_path, values):
    made = [item(study(MORE), results(values)), item(replace(study(MORE), name="trial"), results(values), smoke=True)]
    files = folder(made, tmp_path / "out")
    assert sorted(p.name for p in files) == ["made.txt", "trial.txt", "verdicts.json", "verdicts.md"]

    def refuse(name):
        raise AssertionError(name)

    read = json.loads((tmp_path / "out" / "verdicts.json").read_text(encoding="utf-8"), parse_constant=refuse)
    assert read == [as_data(i) for i in made]
    assert [r["verdict"] for r in read] == [made[0].judgement.verdict, "not judged"]
    assert (tmp_path / "out" / "made.txt").read_text(encoding="utf-8").startswith("Study made\n")


def test_a_course_is_the_mean_over_seeds_at_the_steps_that_all_have():
    got = [
        replace(r, courses={"accuracy": [(0, 0.0), (10, r.scores["accuracy"]), (10 + r.seed, 1.0)]})
        for r in results({"with": (0.2, 0.4)})
    ]
    made = study(cells=["with"], seeds=2)
    (metric,) = as_data(item(made, got))["metrics"]
    assert metric["courses"] == [{"cell": "with", "points": [[0, 0.0], [10, pytest.approx(0.7)]]}]
    assert as_data(item(made, results({"with": (0.2, 0.4)})))["metrics"][0]["courses"] == []
