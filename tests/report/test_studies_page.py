"""The page of judged studies without a browser: everything is in the HTML, in its place, and safe."""

from html.parser import HTMLParser

import pytest
from made_judged import CLEAR, MORE, judged, many
from made_pages import HOSTILE

from minitf.report.dots import BOTTOM, ROW, SIDE, WIDTH, dots
from minitf.report.studies import write_page


class Tags(HTMLParser):
    """Names of tags with those of their attributes."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, [name for name, _ in attrs]))


def row(name="a", values=(0.0, 1.0), **more):
    return {"name": name, "values": values, "notes": [str(v) for v in values], **more}


def test_points_band_and_bounds_share_one_scale():
    picture = dots([row(), row("b", (0.5, None), band=(0.25, 2.0), bounds=[1.0], mean=0.5, interval=(0.0, 0.5))])
    first, second = picture["rows"]
    scale = (first["points"][1]["x"] - first["points"][0]["x"]) / 1.0
    start = first["points"][0]["x"]
    assert start > SIDE
    assert second["band"] == pytest.approx([start + 0.25 * scale, start + 2 * scale], abs=0.2)
    assert second["band"][1] < WIDTH - SIDE
    assert second["bounds"] == pytest.approx([start + scale], abs=0.2)
    assert second["interval"] == pytest.approx([start, start + 0.5 * scale], abs=0.2)
    assert (len(second["points"]), second["without"]) == (1, ["None"])
    assert picture["height"] == 2 * ROW + BOTTOM


def test_equal_values_stay_apart_and_many_stay_in_their_row():
    (only,) = dots([row(values=[0.5] * 20)])["rows"]
    places = [point["y"] for point in only["points"]]
    assert len(set(places)) == 20
    assert only["top"] <= min(places)
    assert max(places) <= only["top"] + 20


@pytest.mark.parametrize(
    ("values", "zero", "log"), [((1e-6, 1.0), False, True), ((1e-6, 1.0), True, False), ((0.0, 9e9), False, False)]
)
def test_a_wide_range_of_positive_values_has_a_logarithmic_axis(values, zero, log):
    picture = dots([row(values=values)], zero)
    assert picture["log"] is log
    assert 2 <= len(picture["ticks"]) <= 8
    assert (picture["zero"] is not None) is zero


def test_a_picture_of_nothing_or_of_one_value():
    assert dots([row(values=(None,))])["rows"][0]["points"] == []
    assert dots([row(values=(0.7, 0.7))])["rows"][0]["points"][0]["x"] == WIDTH / 2


def test_everything_is_in_the_html(tmp_path):
    items = many()
    size = write_page(items, tmp_path / "studies.html", about="2026-01-01, minitf 0.1.0")
    html = (tmp_path / "studies.html").read_text(encoding="utf-8")
    assert size == len(html.encode()) < 200_000
    assert write_page(items, tmp_path / "again.html", about="2026-01-01, minitf 0.1.0") == size
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == html
    body = html.split("<script")[0]
    for item in items:
        assert body.count(f">{item['command']}</code>") == 2
        assert f"<h2>{item['name']}</h2>" in body
        for cell in item["cells"]:
            assert f'<th scope="row" class="word">{cell["name"]}</th>' in body
    n_points = sum(
        v is not None for item in items for metric in item["metrics"] for r in metric["rows"] for v in r["values"]
    )
    n_differences = sum(len(c["differences"]) for item in items for c in item["comparisons"])
    assert body.count('<circle class="point"') == n_points + n_differences + len(items)  # and one in each key
    assert (
        "8 studies: 2 supported, 1 refuted, 1 supported under condition, 2 undecided, 1 not judged, 1 no claim" in body
    )
    assert "without: failed with seed 2: DataError" in body
    assert "2026-01-01" in body


def test_a_chinese_page_says_so_and_keeps_the_words_of_studies(tmp_path):
    write_page(many()[:1], tmp_path / "studies.html", "zh")
    body = (tmp_path / "studies.html").read_text(encoding="utf-8").split("<script")[0]
    assert '<span class="verdict supported">支持</span>' in body
    assert "It helps." in body


def test_no_studies_is_a_page_too(tmp_path):
    assert write_page([], tmp_path / "studies.html") > 0


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_stay_texts(tmp_path, text):
    path = tmp_path / "studies.html"
    write_page([judged(text, CLEAR, MORE, claim=text, source=text, question=text, base=[text])], path, about=text)
    html = path.read_text(encoding="utf-8")
    body = html.split('<script type="application/json"')[0]
    tags = Tags()
    tags.feed(body)
    assert not {"script", "img"} & {tag for tag, _ in tags.seen}
    assert not [name for _, names in tags.seen for name in names if name.startswith("on") or name == "style"]
    assert not {"\0", "\u2028", "\u202e"} & set(html)
    assert " 49 " not in body


def test_what_was_followed_over_training_has_a_curve_for_each_cell(tmp_path):
    item = judged("clear", CLEAR, MORE)
    write_page([item], tmp_path / "without.html")
    points = [[0, 0.1], [50, None], [100, 0.5]]
    item["metrics"][0]["courses"] = [{"cell": cell, "points": points} for cell in CLEAR]
    write_page([item], tmp_path / "with.html")
    with_curves, without = ((tmp_path / f"{name}.html").read_text(encoding="utf-8") for name in ("with", "without"))
    assert with_curves.count("<path class") == without.count("<path class") + 2
    assert "1 with scale; 2 without" in with_curves
    assert "accuracy over training" in with_curves
    assert "accuracy over training" not in without
