"""One HTML file that holds everything: it opens from disk in any browser, loads nothing, runs its own scripts only."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from minitf.errors import ConfigError
from minitf.files import atomic_file
from minitf.report.text import asset, clean, strings, translator, visible

MB = 1_000_000
DTYPES = ("uint8", "uint16", "int32", "float32")  # those that every browser can read


@dataclass(frozen=True)
class Kind:
    """What belongs to one kind of page: its scripts in order, how large its file may be, its own style sheets."""

    scripts: tuple[str, ...]
    budget: int
    styles: tuple[str, ...] = ()


KINDS = {
    "heads": Kind(
        ("heads_data.js", "heads_grid.js", "heads_map.js", "heads_lines.js", "heads_table.js", "heads.js"), 5 * MB
    ),
    "studies": Kind(("studies.js",), 3 * MB, ("studies.css",)),
}


def write_page(
    path: str | Path,
    kind: str,
    title: str,
    data: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    lang: str = "en",
    view: Mapping[str, Any] | None = None,
) -> int:
    """Write one page, whole or not at all; the same data give the same bytes.

    Args:
        path: the HTML file.
        kind: one of KINDS; its template is assets/KIND.html.j2.
        title: of the page.
        data: what scripts and template read; plain values. Numbers that are not finite arrive as their names.
        arrays: name -> array that the scripts read by that name, uint8, uint16, int32 or float32.
        lang: "en" or "zh".
        view: further plain values that only the template needs.

    Returns:
        bytes of the file.

    Raises:
        ConfigError: an unknown language, or a page above the budget of its kind.
        ValueError: an array of another type, or a name that is no plain word.
        OSError: the file cannot be written.
    """
    html = render(kind, title, data, arrays, lang, view).encode("utf-8")
    if len(html) > KINDS[kind].budget:
        raise ConfigError(
            f"{path} would have {len(html) / MB:.1f} MB, more than the {KINDS[kind].budget / MB:.1f} MB that a page of "
            "this kind may have: put less on it"
        )
    with atomic_file(path) as file:
        file.write(html)
    return len(html)


def render(
    kind: str,
    title: str,
    data: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    lang: str = "en",
    view: Mapping[str, Any] | None = None,
) -> str:
    """The text of a page; see `write_page`.

    Raises:
        ConfigError: an unknown language.
        ValueError: an array of a type that no browser reads, or a name that is no plain word.
    """
    # one render call: filling places one after the other would let data forge the next place
    scripts = [asset(name) for name in ("page.js", *KINDS[kind].scripts)]
    style = "".join(asset(name) for name in ("page.css", *KINDS[kind].styles))
    data = clean(data)
    blocks = [{"id": f"array-{name}", "text": _base64(name, array)} for name, array in arrays.items()]
    manifest = {name: {"dtype": str(array.dtype), "shape": list(array.shape)} for name, array in arrays.items()}
    words = strings(lang)
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            kind=kind,
            title=visible(title),
            lang={"en": "en", "zh": "zh-Hans"}[lang],
            tr=translator(lang),
            words=words,
            policy=_policy(scripts, style),
            style=Markup(style),
            scripts=[Markup(script) for script in scripts],
            blobs=[("data", _json(data)), ("strings", _json(words)), ("manifest", _json(manifest))],
            blocks=blocks,
            data=data,
            view=clean(view or {}),
        )
    )


def _environment() -> Environment:
    loader = FunctionLoader(asset)
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters["number"] = number
    return made


def number(value: object, digits: int = 4) -> str:
    """A number as a page shows it: a real minus sign, "–" for none; a name stays.

    Args:
        value: a number, None, or the name of one that is not finite.
        digits: behind the point.
    """
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    text = f"{value:.{digits}f}"
    return "−" + text[1:] if text.startswith("-") and float(text) else text.removeprefix("-")


def _json(value: object) -> Markup:
    """JSON that cannot end its script block: pure ASCII, and no "<"."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


def _base64(name: str, array: np.ndarray) -> str:
    if str(array.dtype) not in DTYPES:
        raise ValueError(f"array '{name}' is {array.dtype}; a page holds {', '.join(DTYPES)}")
    if not name.replace("-", "").replace("_", "").isalnum():
        raise ValueError(f"'{name}' cannot name an array: letters, digits, '-' and '_'")
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return base64.b64encode(little.tobytes()).decode("ascii")


def _policy(scripts: Sequence[str], style: str) -> str:
    """Nothing is loaded, and only what this file was written with runs."""
    run = " ".join(map(_hash, scripts))
    return (
        f"default-src 'none'; script-src {run}; style-src {_hash(style)}; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"
