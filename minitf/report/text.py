"""Text that is safe to look at: what cannot be seen has a name, and nothing is endless."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from minitf.errors import ConfigError

LANGUAGES = ("en", "zh")
LONGEST_TOKEN = 120  # characters of a token that a page holds
KEPT = " \n"


def visible(text: str) -> str:
    """`text` with escapes for controls, lone surrogates and marks that change the direction; spaces and line ends stay.

    Args:
        text: anything; the result can be written as UTF-8 and shows every character that it holds.
    """
    return "".join(c if c.isprintable() or c in KEPT else c.encode("unicode_escape").decode() for c in text)


def token(text: str) -> str:
    """A token as a page shows it: spaces and line ends can be seen, and a very long one is cut and says so.

    Args:
        text: as the tokenizer names it.
    """
    cut = text if len(text) <= LONGEST_TOKEN else f"{text[:LONGEST_TOKEN]}…({len(text):,})"
    return visible(cut.replace("\n", "\\n")).replace(" ", "␣") or "∅"


def clean(value: Any) -> Any:
    """Plain data that JSON can hold: every text visible, every number finite; one that is not becomes its name.

    Args:
        value: dicts, lists, tuples, strings, numbers, bools and None. `nan` and infinities become "nan", "inf", "-inf".
    """
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {visible(str(k)): clean(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def asset(name: str) -> str:
    """The text of a file in assets/, with plain line ends: a browser normalises them before it checks a hash.

    Args:
        name: of the file.
    """
    return (files("minitf.report") / "assets" / name).read_text(encoding="utf-8").replace("\r\n", "\n")


@cache
def strings(lang: str) -> dict[str, str]:
    """Every text of the pages in one language.

    Args:
        lang: "en" or "zh".

    Raises:
        ConfigError: another language.
    """
    if lang not in LANGUAGES:
        raise ConfigError(f"lang={lang}: pages are written in {' and '.join(LANGUAGES)}")
    return json.loads(asset(f"strings.{lang}.json"))


def translator(lang: str) -> Callable[..., str]:
    """`tr(key, name=value)`: a text of the pages with its places filled.

    Args:
        lang: "en" or "zh".

    Raises:
        ConfigError: another language.
    """
    table = strings(lang)

    def tr(key: str, **values: object) -> str:
        text = table[key]
        for name, value in values.items():
            text = text.replace("{" + name + "}", str(value))
        return text

    return tr
