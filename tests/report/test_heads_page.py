"""The page about heads without a browser: packing, what is left out or refused, what is there without scripts."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from made_pages import HOSTILE, decoder_page, diagonal_page, encoder_decoder_page, softmax_maps

from minitf.errors import ConfigError
from minitf.report.heads_data import Attention, Example, Role
from minitf.report.heads_page import fitting, write_heads_page
from minitf.report.pack import is_causal, pack, quantized, unpack
from minitf.report.text import translator


def test_sixteen_bits_are_enough():
    values = np.concatenate([np.linspace(0, 1, 200_001), [1 / 3, 1e-7, 1 - 1e-7]])
    assert np.abs(quantized(values) / 65535 - values).max() <= 7.7e-6
    assert quantized([0.0, 1.0]).tolist() == [0, 65535]
    assert quantized(torch.ones(2, dtype=torch.bfloat16)).tolist() == [65535, 65535]


@pytest.mark.parametrize("values", [[1.001], [-0.001], [float("nan")]])
def test_what_is_no_weight_is_refused(values):
    with pytest.raises(ValueError, match=r"values of 0\.\.1"):
        quantized(values)


@pytest.mark.parametrize("kind", ["causal", "full", "band", "per layer"])
def test_packed_maps_come_back(kind):
    lower = np.tri(7, dtype=bool)
    visible = {
        "causal": lower[None],
        "full": np.ones((1, 7, 4), dtype=bool),
        "band": (lower & ~np.tri(7, k=-3, dtype=bool))[None],
        "per layer": np.stack([lower, lower & ~np.tri(7, k=-3, dtype=bool)]),
    }[kind]
    rng = np.random.default_rng(0)
    layers = [softmax_maps(rng, 1, n, visible[min(i, len(visible) - 1)])[0] for i, n in enumerate((3, 2))]
    packed = pack([torch.tensor(w) for w in layers], visible)
    assert is_causal(visible) == (kind == "causal")
    assert len(packed) == 5 * (28 if kind == "causal" else visible[0].size)
    for back, weights in zip(unpack(packed, (3, 2), visible), layers, strict=True):
        assert back.shape == weights.shape
        assert np.abs(back - weights).max() <= 7.7e-6


def test_a_weight_behind_the_mask_is_refused():
    with pytest.raises(ValueError, match=r"layer 1 .* where `visible` is False"):
        pack([np.eye(3)[None], np.full((1, 3, 3), 1 / 3)], np.tri(3, dtype=bool)[None])


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_same_page_has_the_same_bytes(tmp_path, lang):
    sizes = {write_heads_page(tmp_path / f"{i}.html", decoder_page(), lang) for i in range(2)}
    first, second = ((tmp_path / f"{i}.html").read_bytes() for i in range(2))
    assert first == second
    assert sizes == {len(first)}
    assert len(first) < 150_000


def test_without_scripts_the_table_and_the_curves_are_there(tmp_path):
    write_heads_page(tmp_path / "page.html", decoder_page())
    html = re.sub(r"<script.*?</script>", "", (tmp_path / "page.html").read_text(encoding="utf-8"), flags=re.DOTALL)
    assert html.index("A weight is not a cause.") < html.index("made by hand</h1>")
    row = re.search(r'<tr data-head="3">(.*?)</tr>', html, re.DOTALL)[1]
    cells = [re.sub(r"<.*?>", "", cell).strip() for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)]
    shown = ["1.0", "induction", "0.9000", "0.2000", "0.3000", "−0.5000", "−0.1000 … 0.0000", "2.5000", "nan"]
    assert cells == shown
    assert len(re.findall(r'<tr data-head="\d">', html)) == 6
    assert html.count('class="line') == 6 + 2  # heads along the training, layers of the health
    assert "odd &lt;b&gt;" in html


def test_hostile_texts_stay_texts(tmp_path):
    page = decoder_page(tokens=HOSTILE, title=HOSTILE[0], command=HOSTILE[1], question=HOSTILE[2], notes=HOSTILE)
    page = replace(page, examples=tuple(replace(e, label=HOSTILE[0]) for e in page.examples), effect_of=HOSTILE[1])
    write_heads_page(tmp_path / "page.html", page)
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<img" not in html
    assert "throw 1</script>" not in html
    assert ">49<" not in html
    assert not {"\0", "\u2028", "\u202e"} & set(html)
    data = json.loads(re.search(r'id="data">(.*?)</script>', html, re.DOTALL)[1])
    assert data["symbols"][:4] == [
        "</script><script>throw␣1</script>",
        "<img␣src=x␣onerror=alert(1)>",
        HOSTILE[2],
        HOSTILE[3],
    ]


@pytest.mark.parametrize(
    ("role", "named"),
    [
        (Role("r", 0.5, 0.4), True),
        (Role("r", 0.5, 0.5), False),
        (Role("r", 0.5), False),
        (Role("r", 0.5, 0.4, 0.5), False),
        (Role("r", 0.5, 0.4, 0.45), True),
        (Role("r", -0.1, -0.2, 0.0), False),
        (Role("r", float("nan"), 0.1), False),
    ],
)
def test_a_name_needs_more_than_the_null_and_the_rule(role, named):
    if named:
        assert replace(role, named=True).named
    else:
        with pytest.raises(ValueError, match="only above its null"):
            replace(role, named=True)
    assert not role.named


def test_too_much_is_left_out_and_told():
    page = decoder_page(n_tokens=40, n_examples=3)
    triangle = 2 * 6 * 4 / 3  # bytes in base64 of one place of the triangle in all heads
    one = triangle * (40 * 41 // 2)
    tr = translator("en")
    everything = 250_000 + 6 * 7 * 3 * 4 / 3 + 5 * one  # three examples, two steps
    assert fitting(page, tr, int(everything) + 2)[1] == []
    less, told = fitting(page, tr, int(everything - one / 2))
    assert [e.label for e in less.examples] == ["row 0", "row 1"]
    assert told[0].startswith("Left out, because the file would be above 0 MB: row 2.")
    least, told = fitting(page, tr, int(everything - 3.8 * one))
    assert [e.label for e in least.examples] == ["row 0"]
    assert [bool(s.weights) for s in least.snapshots] == [False, False, False]
    assert [s.scores for s in least.snapshots] == [s.scores for s in page.snapshots]
    assert "maps of 0 of 2 earlier steps" in told[0]
    with pytest.raises(ConfigError, match=r"6 heads, 40 x 40 tokens.*\(heads=\.\.\.\).*\(max_tokens=\.\.\.\)"):
        fitting(page, tr, int(everything - 4.5 * one))


def test_earlier_steps_that_stay_are_spread_evenly():
    page = decoder_page(n_tokens=40, n_examples=1)
    maps = page.snapshots[1].weights
    page = replace(page, snapshots=tuple(replace(page.snapshots[0], step=s, weights=maps) for s in range(9)))
    one = 2 * 6 * 4 / 3 * 820
    less, told = fitting(page, translator("en"), int(250_000 + 168 + 6.2 * one))
    assert [s.step for s in less.snapshots if s.weights] == [0, 4, 8]
    assert "maps of 3 of 9 earlier steps" in told[0]


def test_a_large_page_is_inside_its_budget(tmp_path):
    visible = np.tri(128, dtype=bool)
    page = decoder_page(n_layers=6, n_heads=6, n_tokens=128, n_examples=7, snapshots=(), tokens=None)
    size = write_heads_page(tmp_path / "page.html", page)
    assert 4_000_000 < size <= 5_000_000
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Left out" in text
    assert visible.sum() * 36 * 2 * 4 / 3 < 1_000_000  # one example


def test_what_does_not_fit_together_is_refused():
    page = decoder_page()
    with pytest.raises(ValueError, match="must be the heads of `layers`"):
        replace(page, heads=page.heads[1:])
    with pytest.raises(ValueError, match="needs an example"):
        replace(page, examples=())
    a = page.examples[0].attention[0]
    with pytest.raises(ValueError, match=r"must have maps of \['self'\]"):
        replace(page, examples=(Example("x", (replace(a, kind="cross"),)),))
    with pytest.raises(ValueError, match=r"shapes \[\(3, 12, 12\), \(3, 12, 12\)\], got \[\(3, 12, 12\)\]"):
        replace(page, examples=(Example("x", (Attention("self", a.queries, a.keys, a.weights[:1], a.visible),)),))
    with pytest.raises(ValueError, match="`visible` must be"):
        replace(page, examples=(Example("x", (replace(a, visible=a.visible[:5]),)),))
    with pytest.raises(ValueError, match="step 0: each role needs 6 scores"):
        replace(page, snapshots=(replace(page.snapshots[0], scores={"induction": [1.0]}),))


def test_pages_of_every_shape_are_written(tmp_path):
    for name, page in {
        "cross": encoder_decoder_page(),
        "long": diagonal_page(256),
        "bare": decoder_page(1, 1, 1, 1, snapshots=(), health={}, notes=(), command="", question=""),
    }.items():
        assert write_heads_page(tmp_path / f"{name}.html", page) > 50_000
