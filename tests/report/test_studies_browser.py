"""The page of judged studies in a real browser: quiet, inside the window, sorted, filtered, opened, copied, printed."""

import pytest
from headless import CHROMIUM, DRIVER, NARROW, PHONE, WIDE, Browser
from made_judged import many

from minitf.report.studies import write_page

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver")
ROWS = "#verdicts tbody tr:not([hidden]) th"
NAMES = [item["name"] for item in many()]


class Pages(Browser):
    def open_studies(self, lang="en", size=WIDE, link="", **features):
        path = self.folder / f"studies.{lang}.html"
        if path not in self.written:
            self.written[path] = write_page(many(), path, lang)
        return self.open("studies", None, lang, size, link, **features)

    def opened(self):
        return self.texts("details.study[open] > summary h2")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    made = Pages(tmp_path_factory.mktemp("studies"))
    yield made
    made.driver.quit()


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("size", [WIDE, PHONE, NARROW])
def test_opens_quietly_inside_the_window(browser, size, lang):
    seconds = browser.open_studies(lang, size, color_scheme="dark" if lang == "zh" else "light")
    assert seconds < 4
    browser.click("#open-all")
    assert browser.opened() == NAMES
    assert browser.run("return [document.documentElement.scrollWidth, innerWidth]") == [size[0], size[0]]
    assert browser.run("return performance.getEntriesByType('resource').map((e) => e.name)") == []
    tree = browser.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    controls = {"button", "combobox", "link", "img", "image", "DisclosureTriangle"}
    seen = [n for n in tree if not n["ignored"] and n["role"]["value"] in controls]
    assert len(seen) > 40
    assert not [n["role"]["value"] for n in seen if not n.get("name", {}).get("value", "").strip()]
    small = browser.run(
        "return [...document.querySelectorAll('button, select, summary, a')].filter((e) => e.offsetParent)"
        ".filter((e) => e.getBoundingClientRect().height < 23.9).map((e) => e.outerHTML.slice(0, 80))"
    )
    assert small == []
    assert browser.log() == []


def test_filter_by_verdict_hides_rows_and_studies_and_stays_in_the_link(browser):
    browser.open_studies()
    assert browser.texts(ROWS) == NAMES
    browser.choose("#verdict", "undecided")
    assert browser.texts(ROWS) == browser.texts("details.study:not([hidden]) > summary h2") == ["overlap", "broken"]
    assert browser.text("#count") == "2 of 8 studies"
    assert browser.run("return location.hash") == "#verdict=undecided"
    browser.open_studies(link="#verdict=supported%20under%20condition")
    assert browser.texts(ROWS) == ["depends"]
    browser.open_studies(link="#verdict=wrong")
    assert browser.texts(ROWS) == NAMES
    assert "did not fit" in browser.text("#toast")
    assert browser.log() == []


def test_sorting_by_words_and_by_numbers(browser):
    browser.open_studies()
    browser.click("#verdicts [data-sort=study] button")
    assert browser.texts(ROWS) == sorted(NAMES)
    browser.click("#verdicts [data-sort=study] button")
    assert browser.texts(ROWS) == sorted(NAMES, reverse=True)
    browser.click("#verdicts [data-sort=seeds] button")
    assert browser.texts(ROWS)[0] == "many seeds"
    assert browser.texts(ROWS)[-1] == "trial"
    assert browser.run("return document.querySelector('[aria-sort]').dataset.sort") == "seeds"


def test_a_study_opens_from_its_row_by_keyboard_and_from_the_link(browser):
    browser.open_studies()
    assert browser.opened() == []
    browser.press("#verdicts tr[data-index='1'] a", "\ue007")  # enter
    assert browser.opened() == ["against"]
    assert browser.run("return document.activeElement.textContent").startswith("against")
    assert browser.run("return location.hash") == "#study=1"
    browser.open_studies(link="#study=3")
    assert browser.opened() == ["overlap"]
    browser.choose("#verdict", "supported")
    assert browser.run("return location.hash") == "#verdict=supported"


def test_a_command_is_copied(browser):
    browser.open_studies()
    browser.run("navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }")
    browser.click("#verdicts [data-copy='command-2']")
    assert browser.run("return window.copied") == "python scripts/ablate.py study=depends"


def test_points_lie_where_the_numbers_say(browser):
    browser.open_studies(link="#study=0")
    xs = browser.run(
        "return [...document.querySelector('#s0 svg.curves').querySelectorAll('circle')]"
        ".map((e) => Number(e.getAttribute('cx')))"
    )
    left, right = xs[3], xs[2]  # 0.1 and 1.0
    assert [(x - left) / (right - left) * 0.9 + 0.1 for x in xs] == pytest.approx(
        [0.9, 0.95, 1, 0.1, 0.2, 0.3], abs=1e-3
    )


def test_paper_shows_every_study(browser):
    browser.open_studies()
    browser.run("dispatchEvent(new Event('beforeprint'))")
    assert browser.opened() == NAMES
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert browser.opened() == []
