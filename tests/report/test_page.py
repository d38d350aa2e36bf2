"""The frame of every page: same bytes, whole files, a closed policy, safe text, assets in the wheel."""

import base64
import hashlib
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import minitf
from minitf.errors import ConfigError
from minitf.report import page as page_module
from minitf.report.page import number, render, write_page
from minitf.report.text import asset, clean, strings, token, visible

ASSETS = Path(minitf.__file__).parent / "report" / "assets"
ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(ASSETS.glob("*.js"))


@pytest.fixture
def plain(monkeypatch):
    """A kind of page without scripts of its own."""
    monkeypatch.setitem(page_module.KINDS, "plain", page_module.Kind((), 200_000))
    texts = {"plain.html.j2": "<p id='shown'>{{ data.text }}</p>"}
    monkeypatch.setattr(page_module, "asset", lambda name: texts[name] if name in texts else asset(name))


def block(html, name):
    return re.search(rf'<script [^>]*id="{name}">(.*?)</script>', html, re.DOTALL)[1]


def test_data_come_back_and_cannot_end_their_block(plain):
    text = "</script><!-- {{7*7}} {% raw %} \u2028 \0 \udcff &amp;"
    html = render("plain", text, {"text": text, "x": [1.5, float("nan"), -float("inf")]}, {})
    assert json.loads(block(html, "data")) == {"text": visible(text), "x": [1.5, "nan", "-inf"]}
    assert html.encode("utf-8")
    assert html.count("</script>") == 4  # of data, strings, manifest and page.js
    assert "&lt;/script&gt;&lt;!-- {{7*7}}" in html
    assert "&amp;amp;" in html
    assert not {"\0", "\u2028"} & set(html)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "float32"])
def test_arrays_come_back_bit_for_bit(plain, dtype):
    array = np.arange(12, dtype=dtype).reshape(3, 4)[:, ::2]
    html = render("plain", "t", {"text": ""}, {"a-1": array})
    assert json.loads(block(html, "manifest")) == {"a-1": {"dtype": dtype, "shape": [3, 2]}}
    raw = base64.b64decode(block(html, "array-a-1"))
    assert (np.frombuffer(raw, np.dtype(dtype).newbyteorder("<")).reshape(3, 2) == array).all()


def test_arrays_that_no_browser_reads_are_refused(plain):
    with pytest.raises(ValueError, match="float64"):
        render("plain", "t", {"text": ""}, {"a": np.zeros(2)})
    with pytest.raises(ValueError, match="cannot name"):
        render("plain", "t", {"text": ""}, {'a"b': np.zeros(2, np.uint8)})


def test_the_policy_allows_these_scripts_and_this_style_and_no_others(plain):
    html = render("plain", "t", {"text": ""}, {})
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)[1].replace("&#39;", "'")
    rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split("; ")}
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == ["'none'"]
    assert rules["img-src"] == ["data:", "blob:"]
    for rule, pattern in {"script-src": r"<script>(.*?)</script>", "style-src": r"<style>(.*?)</style>"}.items():
        digests = [hashlib.sha256(text.encode()).digest() for text in re.findall(pattern, html, re.DOTALL)]
        assert rules[rule] == [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
    assert " style=" not in html
    assert not re.search(r"<[^>]+ on\w+=", html.split("<script")[0])


def test_above_the_budget_nothing_is_written(plain, tmp_path):
    path = tmp_path / "page.html"
    with pytest.raises(ConfigError, match=r"0\.\d MB, more than the 0\.2 MB"):
        write_page(path, "plain", "t", {"text": "x" * 200_000}, {})
    assert not list(tmp_path.iterdir())
    assert write_page(path, "plain", "t", {"text": "x"}, {}) == path.stat().st_size
    assert path.read_bytes() == render("plain", "t", {"text": "x"}, {}).encode()


def test_languages(plain):
    assert '<html lang="zh-Hans">' in render("plain", "t", {"text": ""}, {}, "zh")
    with pytest.raises(ConfigError, match="lang=de: pages are written in en and zh"):
        render("plain", "t", {"text": ""}, {}, "de")
    english, chinese = strings("en"), strings("zh")
    assert english.keys() == chinese.keys()
    for key, text in english.items():
        assert set(re.findall(r"{\w+}", text)) == set(re.findall(r"{\w+}", chinese[key])), key
        assert text.strip(), key
        assert chinese[key].strip(), key


def test_every_text_that_an_asset_asks_for_exists_and_is_asked_for():
    used, starts = set(), set()
    for path in [*SCRIPTS, *ASSETS.glob("*.j2")]:
        text = path.read_text(encoding="utf-8")
        used |= set(re.findall(r"""\btr\(["']([\w.]+)["'][,)]""", text))
        used |= set(re.findall(r"""["']([a-z]+\.[a-z.]+)["']""", text))
        starts |= set(re.findall(r"""\btr\(["']([\w.]+)(?:%d)?["'] [~%]""", text))
        starts |= set(re.findall(r"tr\(`([\w.]+)\$", text))
    used |= {"left.movie", "left.examples"}  # of heads_page.py
    used |= {"head", "name", "score", "null", "baseline", "effect", "control"}  # columns, by their names
    known = strings("en").keys()
    plain_calls = set()
    for path in [*SCRIPTS, *ASSETS.glob("*.j2")]:
        plain_calls |= set(re.findall(r"""\btr\(["']([\w.]+)["'][,)]""", path.read_text(encoding="utf-8")))
    assert plain_calls <= known
    unused = {k for k in known if k not in used and not k.startswith((*starts, "name.", "about."))}
    assert not unused


@pytest.mark.parametrize("path", [*SCRIPTS, *ASSETS.glob("*.j2")], ids=lambda path: path.name)
def test_no_markup_is_built_from_strings(path):
    text = path.read_text(encoding="utf-8")
    banned = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|\beval\b"
    banned += r"|new Function|localStorage|sessionStorage|cookie|fetch\(|XMLHttpRequest|\|\s*safe\b|autoescape false"
    assert not re.findall(banned, text)
    assert "</script" not in text.lower() or path.suffix == ".j2"
    assert len(text.splitlines()) <= 250


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("a b\n", "a␣b\\n"),
        ("\0\t", "\\x00\\t"),
        ("\u202eabc", "\\u202eabc"),
        ("\u2028", "\\u2028"),
        ("\udcff", "\\udcff"),
        ("中😀", "中😀"),
        ("", "∅"),
        ("x" * 4000, "x" * 120 + "…(4,000)"),
    ],
)
def test_a_token_shows_every_character_that_it_holds(raw, shown):
    assert token(raw) == shown


def test_text_keeps_spaces_and_line_ends():
    assert clean({"a\0": ["b c\n", ("\u202e", None, True, 3)]}) == {"a\\x00": ["b c\n", ["\\u202e", None, True, 3]]}


def test_numbers():
    assert [number(v) for v in (None, "nan", -0.00001, -1.5, 2)] == ["–", "nan", "0.0000", "−1.5000", "2.0000"]


def test_a_wheel_holds_the_assets_and_writes_pages(tmp_path):
    builder = pytest.importorskip("hatchling.builders.wheel").WheelBuilder(str(ROOT))
    (wheel,) = builder.build(directory=str(tmp_path / "dist"), versions=["standard"])
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        file.extractall(tmp_path / "site")
    assert {f"minitf/report/assets/{path.name}" for path in ASSETS.iterdir()} <= names
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r})\n"
        "import minitf.report.page as page\n"
        "print(page.__file__, len(page.asset('page.js')), 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    file, size, torch_is_there = done.stdout.split()
    assert file.startswith(str(tmp_path / "site"))
    assert int(size) == len(asset("page.js"))
    assert torch_is_there == "False"
