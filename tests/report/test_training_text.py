"""The course of training in words."""

from minitf.report.heads_data import Snapshot
from minitf.report.lines import signed, signed_range
from minitf.report.training_text import MOST_ROWS, chosen, training_text


def course(values):
    return [
        Snapshot(10 * i, {"induction": [0.1, value], "previous-token": [None, 0.2]}) for i, value in enumerate(values)
    ]


def test_the_step_from_which_a_pattern_stays_is_told():
    values = [0.05, 0.1, 0.45, 0.3, 0.6, 0.9]
    text = training_text(course(values), [{"step": 40, "val/loss": 1.25}, {"step": 50, "train/loss": 3.0}])
    assert "induction: some head is at 0.4 or more from step 40 on" in text
    assert "previous-token: some head" not in text
    row = next(line for line in text.split("\n") if line.strip().startswith("40"))
    assert row.split() == ["40", "1.2500", "0.200", "0.600"]
    assert training_text([], []) == ""


def test_roles_have_columns_and_a_loss_that_no_step_has_has_none():
    snapshots = [Snapshot(step, {"year": [None, step / 10], "induction": [0.9, 0.1]}) for step in (1, 2)]
    text = training_text(snapshots, [{"step": 100, "val/loss": 1.0}])
    assert [line.split() for line in text.split("\n")[1:4]] == [
        ["step", "induction", "year"],
        ["1", "0.900", "0.100"],
        ["2", "0.900", "0.200"],
    ]
    assert "year: some head" not in text


def test_long_courses_keep_what_lies_around_the_change():
    values = [0.1] * 30 + [0.2, 0.5, 0.8] + [0.9] * 30
    snapshots = course(values)
    kept = [s.step for s in chosen(snapshots, {"induction": [(s.step, s.scores["induction"][1]) for s in snapshots]})]
    assert len(kept) <= MOST_ROWS
    assert kept == sorted(kept)
    assert {0, 290, 300, 310, 320, 330, 620} <= set(kept)


def test_changes_have_signs_and_nothing_is_not_minus_nothing():
    assert [signed(-0.0002), signed(0.25), signed(-0.25)] == ["+0.000", "+0.250", "-0.250"]
    assert [signed_range([0.1, -0.2, 0.0]), signed_range([0.1]), signed_range([])] == [
        "-0.200 to +0.100",
        "+0.100",
        "none",
    ]
