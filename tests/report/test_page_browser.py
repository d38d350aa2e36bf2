"""The page about heads in a real browser: quiet, inside the window, every shown number and colour the right one."""

from dataclasses import replace

import numpy as np
import pytest
from headless import CHROMIUM, DRIVER, NARROW, PHONE, WIDE, Browser
from made_pages import HOSTILE, decoder_page, diagonal_page, encoder_decoder_page

from minitf.report.figures import ramp
from minitf.report.heads_data import Role
from minitf.report.page import KINDS

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver")
MASKED = (0xCF, 0xC6, 0xB8)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    made = Browser(tmp_path_factory.mktemp("pages"))
    yield made
    made.driver.quit()


def shade(weights, scale=np.sqrt):
    """Colours of weights by the formula in Python."""
    return ramp(scale(np.asarray(weights, dtype=float))) * 255


def near(colours, wanted):
    return np.abs(colours - np.asarray(wanted)).max() <= 1.5


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize(
    ("size", "make"), [(WIDE, decoder_page), (PHONE, decoder_page), (NARROW, encoder_decoder_page)]
)
def test_a_page_opens_quietly_inside_the_window(browser, make, size, lang):
    seconds = browser.open(make.__name__, make(), lang, size, color_scheme="dark" if lang == "zh" else "light")
    assert seconds < 4
    assert browser.log() == []
    assert browser.run("return [document.documentElement.scrollWidth, innerWidth]") == [size[0], size[0]]
    assert browser.run("return performance.getEntriesByType('resource').map((e) => e.name)") == []
    tree = browser.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    controls = {"button", "radio", "combobox", "checkbox", "slider", "link", "img", "image", "textbox"}
    seen = [n for n in tree if not n["ignored"] and n["role"]["value"] in controls]
    assert len(seen) > 8
    assert not [n["role"]["value"] for n in seen if not n.get("name", {}).get("value", "").strip()]
    small = browser.run(
        "return [...document.querySelectorAll('button, select, summary, input')].filter((e) => e.offsetParent)"
        ".filter((e) => e.type !== 'radio' && e.type !== 'checkbox' && e.getBoundingClientRect().height < 23.9)"
        ".map((e) => e.outerHTML.slice(0, 80))"
    )
    assert small == []


def test_the_nth_thumbnail_selects_the_nth_head_and_its_map_is_shown(browser):
    page = decoder_page()
    browser.open("decoder_page", page)
    visible = np.tri(12, dtype=bool)
    maps = np.asarray(page.examples[0].attention[0].weights).reshape(6, 12, 12)
    assert browser.text("#map-title") == "Head 1.0: induction"  # the clearest head to begin with
    for n, weights in enumerate(maps):
        browser.click(f".thumb:not(.empty)[data-head='{n}']")
        assert browser.text("#map-title").startswith(f"Head {n // 3}.{n % 3}")
        cells = browser.cells(12, 12)
        assert near(cells[visible], shade(weights[visible])), n
        assert (cells[~visible] == MASKED).all(), n
        thumb = browser.pixels(f".thumb[data-head='{n}'] canvas")
        assert near(thumb[-1, 0], shade(weights[-1, 0]))
        assert (thumb[0, -1] == MASKED).all()
    for scale, formula in {"linear": lambda v: v, "log": lambda v: 1 + np.log10(np.maximum(v, 1e-4)) / 4}.items():
        browser.choose("#scale", scale)
        assert near(browser.cells(12, 12)[visible], shade(maps[5][visible], formula)), scale
    assert browser.log() == []


def test_the_row_table_has_the_order_of_numpy(browser):
    page = decoder_page()
    browser.open("decoder_page", page, link="#head=4&row=11")
    row = np.asarray(page.examples[0].attention[0].weights)[1, 1, 11]
    order = np.argsort(-np.rint(row * 65535), kind="stable")
    assert browser.texts("#row-table tbody th") == [str(j) for j in order[:8]]
    assert browser.texts("#row-table tbody td:nth-child(2)") == [f"t{j}" for j in order[:8]]
    shown = browser.texts("#row-table tbody td:nth-child(3)")
    assert np.abs(np.array(shown, float) - row[order[:8]]).max() <= 6e-5
    rest = browser.text("#row-table tbody tr:last-child")
    assert rest == f"4 more keys, together {row[order[8:]].sum():.4f}"
    browser.press("#map-canvas", *["\ue013"] * 9)  # arrow up
    assert browser.text("#row-title") == "Query 2 t2 reads"
    assert browser.texts("#row-table .hatched") == ["masked: 9 keys"]
    browser.run("navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }")
    browser.click("#row-list")
    copied = eval(browser.run("return window.copied"))
    np.testing.assert_allclose(copied[:3], np.asarray(page.examples[0].attention[0].weights)[1, 1, 2, :3], atol=1e-5)
    assert copied[3:] == [None] * 9
    browser.click("#map-tsv")
    lines = browser.run("return window.copied").splitlines()
    assert lines[0].split("\t") == ["", *[f"t{i}" for i in range(12)]]
    assert lines[1].split("\t") == ["t0", "1", *["masked"] * 11]


def test_cross_attention_of_five_by_nine(browser):
    page = encoder_decoder_page()
    browser.open("encoder_decoder_page", page)
    attention = {a.kind: a for a in page.examples[0].attention}
    assert browser.texts("#kinds label") == [" encoder", " decoder", " cross"]
    for kind, shape in {"cross": (5, 9), "decoder": (5, 5), "encoder": (9, 9)}.items():
        browser.click(f"#kinds input[value={kind}]")
        assert browser.text("#map-title").startswith(f"Head {kind} 0.0")
        visible = attention[kind].mask()[0]
        cells = browser.cells(*shape)
        assert cells.shape[:2] == shape
        assert near(cells[visible], shade(attention[kind].weights[0][0][visible])), kind
        assert (cells[~visible] == MASKED).all()
    browser.click(".thumb[data-head='2']")
    assert browser.text("#map-title") == "Head encoder 0.5"  # heads 0, 2 and 5 are shown
    assert browser.run("return document.querySelectorAll('.thumb.empty').length") == 3
    assert browser.texts("#row-table tbody th") == ["0", "1", "2", "3", "4", "5", "6"]  # equal weights: by place
    browser.click("#kinds input[value=decoder]")
    browser.click(".thumb[data-head='6']")
    band = attention["decoder"].mask()[1]  # the layers of this kind have masks of their own
    cells = browser.cells(5, 5)
    assert near(cells[band], shade(attention["decoder"].weights[1][1][band]))
    assert (cells[~band] == MASKED).all()
    browser.click("#kinds input[value=cross]")
    browser.click(".thumb[data-head='10']")
    assert near(browser.cells(5, 9)[0, :7], shade(attention["cross"].weights[1][1][0, :7]))
    browser.press("#map-canvas", "\ue013")
    assert "no key" in browser.text("#row-table")
    assert browser.log() == []


def test_a_diagonal_of_one_pixel_survives_the_small_maps(browser):
    browser.open("diagonal128", diagonal_page(128))
    for head in (0, 1):
        thumb = browser.pixels(f".thumb[data-head='{head}'] canvas")
        assert thumb.shape[0] == 54
        dark = np.abs(thumb - shade(1.0)).max(-1) <= 1.5
        assert dark.any(axis=0).all()
        assert dark.any(axis=1).all()


def test_256_tokens_are_drawn_without_a_wait(browser):
    page = decoder_page(n_layers=1, n_heads=6, n_tokens=256, n_examples=1, snapshots=())
    for size in (WIDE, PHONE):
        browser.open("long", page, size=size)
        times = browser.run(
            "const times = []; for (const head of [1, 2, 3, 4, 5, 0]) { const t = performance.now();"
            "document.querySelector(`.thumb[data-head='${head}']`).click(); document.body.offsetHeight;"
            "times.push(performance.now() - t); } return times;"
        )
        assert sorted(times)[3] < 400
    assert " of 32896 lines" in browser.text("#lines-note")
    assert "too many tokens for labels" in browser.text("#map-kind")
    many = "{ values: Uint16Array.from({ length: 40000 }, (_, i) => 20000 + (i * 7919) % 40000) }"
    chosen = browser.run(
        f"const found = chooseLines({many}); return [found.lines.length, Math.round(found.least * 65535)]"
    )
    assert chosen == [4000, 56000]
    assert browser.pixels("#map-canvas").shape[:2] == (256, 256)


def test_hostile_tokens_are_shown_and_do_nothing(browser):
    page = decoder_page(tokens=HOSTILE, title=HOSTILE[0], notes=HOSTILE, question=HOSTILE[6], effect_of=HOSTILE[1])
    page = replace(page, examples=tuple(replace(e, label=HOSTILE[1]) for e in page.examples))
    for size in (WIDE, PHONE):
        browser.open("hostile", page, size=size)
        browser.press("#map-canvas", *["\ue013"] * 3)
        assert browser.log() == []
        html = (browser.folder / "hostile.en.html").read_text(encoding="utf-8")
        own = 3 + html.count(' id="array-') + len(("page.js", *KINDS["heads"].scripts))
        assert browser.run("return [document.images.length, document.scripts.length]") == [0, own]
        assert browser.run("return document.documentElement.scrollWidth") == size[0]
    assert browser.text("h1") == HOSTILE[0]
    assert browser.texts("#map-queries bdi")[6] == "\\u202eabc" or not browser.texts("#map-queries bdi")
    assert browser.texts("#rows-list li:first-child bdi")[4:6] == ["\\x00", "\\u2028"]


def test_a_link_brings_everything_back_and_a_bad_one_does_no_harm(browser):
    page = decoder_page()
    browser.open("decoder_page", page)
    browser.choose("#example", "1")
    browser.choose("#scale", "log")
    browser.click(".thumb[data-head='2']")
    browser.choose("#f-role", "induction")
    browser.press("#map-canvas", "\ue013", "\ue013")
    link = browser.run("return location.hash")
    shown = browser.pixels("#map-canvas")
    browser.open("decoder_page", page, link=link)
    assert (browser.pixels("#map-canvas") == shown).all()
    state = (
        "return [$('example').value, $('scale').value, $('f-role').value, $('filter').open, $('map-title').textContent]"
    )
    assert browser.run(state) == ["1", "log", "induction", True, "Head 0.2"]
    assert browser.text("#row-title") == "Query 8 t8 reads"
    browser.open("decoder_page", page, link="#head=99&row=-1&scale=<b>&__proto__=1&example=1&%E0%A4%A=%E0%A4%A")
    assert browser.run(state)[:2] == ["1", "sqrt"]
    assert browser.text("#toast").startswith("Part of the link")
    assert browser.log() == []


def test_filter_and_sorting(browser):
    browser.open("decoder_page", decoder_page())
    rows = "#heads-table tbody tr:not([hidden]) th"
    browser.click("[data-sort=effect] button")
    assert browser.texts(rows) == ["1.0", "0.0", "0.1", "1.1", "0.2", "1.2"]
    browser.click("[data-sort='metric.odd <b>'] button")
    assert browser.texts(rows)[-1] == "1.0"  # what has no number is last
    browser.click("[data-sort=head] button")
    browser.choose("#f-layer", "1")
    assert browser.texts(rows) == ["1.0", "1.1", "1.2"]
    browser.click("#f-named")
    assert browser.texts(rows) == ["1.0"]
    faint = browser.run("return [...document.querySelectorAll('.thumb.faint')].map((e) => e.dataset.head)")
    assert faint == ["0", "1", "2", "4", "5"]
    assert browser.text("#matches") == "1 of 6 heads"
    browser.click("#f-clear")
    browser.choose("#f-effect", "beyond")
    assert browser.texts(rows) == ["0.1", "0.2", "1.0", "1.1", "1.2"]
    browser.choose("#f-role", "previous_token")
    assert browser.texts("#heads-table tr[data-head='3'] td")[:2] == ["previous token (no name)", "0.0500"]


def test_the_filter_knows_the_kinds_of_attention(browser):
    page = encoder_decoder_page()
    rows = "#heads-table tbody tr:not([hidden]) th"
    browser.open("encoder_decoder_page", page)
    browser.choose("#f-kind", "cross")
    assert browser.texts(rows) == ["cross 0.0", "cross 0.1", "cross 1.0", "cross 1.1"]
    assert browser.text("#matches") == "4 of 11 heads"
    assert browser.text("#map-title") == "Head cross 0.0"  # the small maps are of that kind, too
    assert browser.run("return document.querySelectorAll('.thumb.faint').length") == 0
    link = browser.run("return location.hash")
    browser.click("#kinds input[value=encoder]")  # the other choice takes the filter with it
    assert browser.texts(rows) == ["encoder 0.0", "encoder 0.2", "encoder 0.5"]
    assert browser.run("return $('f-kind').value") == "encoder"
    browser.open("encoder_decoder_page", page, link=link)
    assert browser.run("return [$('f-kind').value, $('filter').open]") == ["cross", True]
    browser.click("#f-clear")
    assert len(browser.texts(rows)) == 11
    browser.open("decoder_page", decoder_page())
    assert browser.run("return $('f-kind').parentElement.hidden")  # one kind is no choice
    assert browser.log() == []


def test_every_name_of_a_head_is_shown(browser):
    page = decoder_page()
    roles = (Role("induction", 0.9, 0.2, None, True), Role("day", 0.8, 0.1, 0.3, True), Role("sink", 0.1, 0.2))
    roles = (*roles, Role("year", 0.7, 0.1, 0.3, True))
    heads = tuple(replace(h, roles=roles) if (h.layer, h.head) == (1, 0) else h for h in page.heads)
    browser.open("names", replace(page, heads=heads), link="#head=3")
    assert browser.text("#map-title") == "Head 1.0: induction, day, year"
    assert browser.texts(".thumb[data-head='3'] .thumb-name span") == ["induction", "day", "year"]
    cells = "#heads-table tr[data-head='3'] td:nth-child({}) div"
    found = [browser.texts(cells.format(column)) for column in (2, 3, 4, 5)]
    assert found[:2] == [["induction", "day", "year"], ["0.9000", "0.8000", "0.7000"]]
    assert found[2:] == [["0.2000", "0.1000", "0.1000"], ["–", "0.3000", "0.3000"]]
    told = ["mean weight on what followed the same token before", "share of its answers whose largest weight is where"]
    assert [text[: len(told[i])] for i, text in enumerate(browser.texts("#facts li small"))] == told  # once for two
    browser.choose("#f-role", "year")
    assert browser.texts(cells.format(3)) == ["0.7000"]
    browser.open("names", replace(page, heads=heads), size=PHONE)
    assert browser.run("return document.documentElement.scrollWidth") == PHONE[0]


def test_a_head_that_matters_less_than_every_control_is_not_beyond_them(browser):
    page = decoder_page()
    effects = {0: (-0.02, (-0.3, -0.1)), 1: (0.02, (0.1, 0.3)), 2: (-0.2, (-0.3, -0.1)), 3: (0.4, (0.1, 0.3))}
    heads = [replace(h, effect=None, controls=()) for h in page.heads]
    for i, (effect, controls) in effects.items():
        heads[i] = replace(heads[i], effect=effect, controls=controls)
    browser.open("verdicts", replace(page, heads=tuple(heads)))
    assert browser.run("return HEADS.map(verdict)") == ["less", "less", "within", "beyond", "", ""]
    browser.choose("#f-effect", "less")
    assert browser.texts("#heads-table tbody tr:not([hidden]) th") == ["0.0", "0.1"]
    browser.click(".thumb[data-head='0']")
    assert "less than every control" in browser.text("#facts")


def test_the_keyboard_moves_through_heads(browser):
    browser.open("decoder_page", decoder_page(), link="#head=0")
    assert browser.run("return document.querySelectorAll('.thumb[tabindex=\"0\"]').length") == 1
    browser.press(".thumb[data-head='0']", "\ue015")  # arrow down
    assert browser.run("return document.activeElement.dataset.head") == "3"
    browser.driver.switch_to.active_element.send_keys("\ue014")  # arrow right
    assert browser.text("#map-title") == "Head 1.1"
    assert browser.run("return document.activeElement.getAttribute('aria-checked')") == "true"


def test_the_movie_shows_the_maps_of_its_steps(browser):
    page = decoder_page()
    browser.open("decoder_page", page, link="#head=3&example=1")
    visible = np.tri(12, dtype=bool)
    for frame, snapshot in enumerate(page.snapshots[1:]):  # the first one kept no maps
        browser.choose("#step", str(frame))
        assert f"at step {snapshot.step} " in browser.text("#map-title")
        weights = np.asarray(snapshot.weights["self"])[1, 0]
        assert near(browser.cells(12, 12)[visible], shade(weights[visible]))
        assert browser.run("return document.querySelector('#movie .now').getAttribute('visibility')") == "visible"
    assert browser.run("return $('example').value") == "0"  # the movie is of the first example
    assert browser.run("return document.querySelector('#movie path.on').dataset.line") == "3"
    browser.choose("#example", "1")
    assert browser.text("#step-text") == "trained model"
    browser.click("#play")
    assert browser.text("#play") == "pause"
    browser.click("#play")
    assert "at step 10 " in browser.text("#map-title")
    assert browser.log() == []
    browser.open("decoder_page", page, reduced_motion="reduce")
    assert browser.run("return $('play').hidden")
    assert "less motion" in browser.text("#movie-hint")


def test_the_mark_of_the_movie_stands_at_its_step_on_a_log_axis(browser):
    page = decoder_page()
    snapshots = tuple(replace(page.snapshots[1], step=step) for step in (0, 1, 2, 4, 8, 16, 64))
    browser.open("log_steps", replace(page, snapshots=snapshots))
    for frame in (0, 3, 6):
        browser.choose("#step", str(frame))
        mark = browser.run("return Number(document.querySelector('#movie .now').getAttribute('x1'))")
        path = browser.run("return document.querySelector('#movie path.line').getAttribute('d')")
        assert mark == pytest.approx(float(path[1:].split("L")[frame].split()[0]), abs=0.06)


def test_paper_is_light_on_a_dark_screen(browser):
    browser.open("decoder_page", decoder_page(), color_scheme="dark")
    dark = browser.pixels("#lines-canvas")
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.run("return [...document.querySelectorAll('details')].every((part) => part.open)")
    paper = browser.pixels("#lines-canvas")
    browser.open("decoder_page", decoder_page())
    assert not (paper == dark).all()
    assert (paper.max(axis=(0, 1)) == browser.pixels("#lines-canvas").max(axis=(0, 1))).all()


@pytest.mark.slow
def test_effects_stand_beside_the_map_with_their_controls(browser):
    browser.open("decoder_page", decoder_page(), link="#head=3")
    facts = browser.text("#facts")
    assert "induction score 0.9000 · null 0.2000 · best rule without a model 0.3000" in facts
    assert "Switched off: −0.5000. Others instead: −0.1000 to 0.0000 (2 tries) – beyond every control" in facts
    bar = "const b = document.querySelector('.strip i').getBoundingClientRect(), s = document.querySelector('.strip')"
    found = browser.run(f"{bar}.getBoundingClientRect(); return [(b.left - s.left) / s.width, b.width / s.width]")
    assert found == pytest.approx([0, 0.5], abs=0.01)  # the largest effect of all reaches the end
    assert browser.run("return document.querySelector('.strip i').className") == "bar-down"
    browser.click(".thumb[data-head='0']")
    assert "among the controls" in browser.text("#facts")
    assert "No name" in browser.text("#facts")


def test_a_role_without_a_name_says_the_right_reason(browser):
    page = decoder_page()
    roles = (Role("copying", 0.7, 0.1), Role("equal", 0.05, 0.2), Role("repeat", 0.5, 0.1, 0.6), Role("induction", 0.5))
    first = replace(page.heads[0], roles=roles)
    browser.open("unnamed", replace(page, heads=(first, *page.heads[1:])), link="#head=0")
    told = dict(zip(browser.texts("#facts dt"), browser.texts("#facts dd"), strict=True))
    reasons = {role.role: told[role.role].rpartition("(")[2].rstrip(")") for role in roles}
    assert reasons == {
        "copying": "above its null, but by too little or below what the name needs",
        "equal": "not above its null and its rule, so no name",
        "repeat": "not above its null and its rule, so no name",
        "induction": "no null was measured, so no name",
    }
