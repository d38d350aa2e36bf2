"""Figures: the same bytes for the same data, the right cell has the right colour."""

import io
from dataclasses import replace

import numpy as np
import pytest
from made_pages import HOSTILE, decoder_page, encoder_decoder_page

from minitf.report import written
from minitf.report.figures import draw_effects, draw_maps, draw_scores, ramp
from minitf.report.heads_data import Role

MASKED = (0xCF, 0xC6, 0xB8)


def draw_all(folder, page):
    paths = draw_maps(folder / "maps", page.examples[0].attention[0], page.layers, "a title")
    paths += draw_scores(folder / "scores", page.heads, "induction")
    return paths + draw_effects(folder / "effects", page.heads, [f"{h.layer}.{h.head}" for h in page.heads], "accuracy")


def test_the_same_data_give_the_same_bytes(tmp_path):
    page = decoder_page(tokens=[*HOSTILE[:6], "$x$"], n_heads=1, n_tokens=7)
    first, second = draw_all(tmp_path / "a", page), draw_all(tmp_path / "b", page)
    assert [p.name for p in first] == [f"{n}.{e}" for n in ("maps", "scores", "effects") for e in ("png", "svg")]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name
        assert b"202" not in one.read_bytes()[:400]  # no date


def test_scores_are_drawn_kind_by_kind(tmp_path, monkeypatch):
    page = encoder_decoder_page()
    role = Role("previous-token", 0.9, 0.1, None, True)
    heads = tuple(replace(h, roles=(role,)) if h.kind != "cross" else h for h in page.heads)
    drawn = {}
    monkeypatch.setattr(written, "draw_scores", lambda path, heads, role: drawn.update({path.name: heads}) or [])
    monkeypatch.setattr(written, "draw_maps", lambda *_: [])
    written.figures(tmp_path, replace(page, heads=heads))
    assert {name: {h.kind for h in heads} for name, heads in drawn.items()} == {
        "scores_encoder_previous-token": {"encoder"},  # heads of two kinds have the same layer and number
        "scores_decoder_previous-token": {"decoder"},
    }


def test_cross_attention_is_drawn(tmp_path):
    page = encoder_decoder_page()
    (cross,) = (a for a in page.examples[0].attention if a.kind == "cross")
    paths = draw_maps(tmp_path / "cross", cross, [layer for layer in page.layers if layer.kind == "cross"])
    assert min(path.stat().st_size for path in paths) > 4000


def test_masked_cells_have_their_own_colour(tmp_path):
    from matplotlib.image import imread

    page = decoder_page(n_layers=1, n_heads=1, n_examples=1, snapshots=(), n_tokens=12)
    png, _ = draw_maps(tmp_path / "one", page.examples[0].attention[0], page.layers)
    colours = (imread(io.BytesIO(png.read_bytes()))[..., :3] * 255).round().reshape(-1, 3)
    share = {
        name: (np.abs(colours - want).max(-1) <= 1).mean()
        for name, want in {"masked": MASKED, "one": ramp(np.array(1.0)) * 255}.items()
    }
    assert share["masked"] > 0.05
    assert share["one"] > 0.001  # the first row sees only itself


def test_the_ramp_gets_darker_all_the_way_and_is_never_the_masked_grey():
    colours = ramp(np.linspace(0, 1, 257)) * 255
    light = colours @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(light) < 0).all()
    assert np.abs(colours - np.array(MASKED)).max(-1).min() > 17
    assert colours[0] == pytest.approx([238, 250, 255], abs=3)
