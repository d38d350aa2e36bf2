"""Curves: nothing that matters is lost by thinning, gaps stay gaps, and the numbers stand beside them."""

import math
from itertools import pairwise

from minitf.report.curves import Axis, picture, short, thinned


def test_thinning_keeps_every_peak():
    points = [(x, 0.0) for x in range(100_000)]
    points[54_321] = (54_321, 9.0)
    points[54_322] = (54_322, -9.0)
    kept = thinned(points, Axis(0, 99_999, 0, 300))
    assert len(kept) <= 4 * 301
    assert {(54_321, 9.0), (54_322, -9.0)} <= set(kept)
    assert kept == sorted(kept)


def test_a_value_that_is_not_finite_is_a_gap():
    drawn = picture({"L0": [(0, 1.0), (1, math.nan), (2, 1.0), (3, 2.0)]})
    assert drawn["lines"][0]["path"].count("M") == 2
    assert drawn["lines"][0]["path"].count("L") == 1


def test_points_lie_where_the_axes_say():
    drawn = picture({"a": [(0, 0.0), (10, 1.0)]}, low=0, high=1)
    left, top, right, bottom = drawn["frame"]
    ticks = {tick["text"]: tick["at"] for tick in drawn["y"]}
    assert ticks["0"] > ticks["0.5"] > ticks["1"]
    assert drawn["lines"][0]["path"] == f"M{left:.1f} {ticks['0']:.1f}L{right:.1f} {ticks['1']:.1f}"
    assert top < ticks["1"] < ticks["0"] < bottom


def test_three_powers_of_ten_make_a_logarithmic_axis():
    drawn = picture({"a": [(s, 10.0**-s) for s in range(5)]})
    assert drawn["log"]
    at = [tick["at"] for tick in drawn["y"]]
    assert [tick["text"] for tick in drawn["y"]] == ["1e-4", "0.001", "0.01", "0.1", "1"]
    steps = [a - b for a, b in pairwise(at)]
    assert min(steps) > 0.98 * max(steps)


def test_steps_on_a_log_schedule_are_not_squeezed():
    drawn = picture({"a": [(s, 0.5 * s) for s in (0, 1, 3, 7, 15, 31, 63)]})
    places = [float(part.split()[0]) for part in drawn["lines"][0]["path"][1:].split("L")]
    steps = [b - a for a, b in pairwise(places)]
    assert drawn["x_log"]
    assert max(steps) - min(steps) < 0.3  # these steps plus 1 are powers of 2
    assert [tick["text"] for tick in drawn["x"]] == ["0", "1", "10"]
    assert not picture({"a": [(s, 0.5 * s) for s in range(0, 700, 100)]})["x_log"]


def test_names_at_the_ends_do_not_cover_each_other():
    drawn = picture({f"L{i}": [(0, 0.0), (1, 1.0 + i / 1000)] for i in range(6)})
    ends = sorted(line["end"] for line in drawn["lines"])
    assert min(b - a for a, b in pairwise(ends)) >= 10.9
    by_height = sorted(drawn["lines"], key=lambda line: line["end"])
    assert [line["name"] for line in by_height] == [f"L{i}" for i in reversed(range(6))]


def test_the_table_holds_the_first_and_the_last_step():
    table = picture({"a": [(s, s / 2) for s in range(100)], "b": [(0, 1.0)]})["table"]
    assert table["rows"][0] == [0, 0.0, 1.0]
    assert table["rows"][-1] == [99, 49.5, None]
    assert len(table["rows"]) == 12


def test_empty_and_constant_curves_are_drawn():
    assert picture({"a": []})["lines"][0]["path"] == ""
    assert "NaN" not in str(picture({"a": [(3, 2.0)]})).replace("nan", "NaN")


def test_short_numbers():
    assert [short(v) for v in (0, 0.25, 400, 20_000, 1e-5, -3e-7)] == ["0", "0.25", "400", "20k", "1e-5", "-3e-7"]
