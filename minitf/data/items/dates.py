"""Human dates in twelve locales, to be written as YYYY-MM-DD."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from minitf.data.items import Item, ItemSource, Split, check_share, in_val
from minitf.errors import ConfigError, DataError

if TYPE_CHECKING:
    from babel import Locale

LOCALES = ("de", "en_GB", "en_US", "es", "fr", "it", "ja", "nl", "pl", "ru", "sv", "zh")
FIRST, LAST = datetime.date(1950, 1, 1), datetime.date(2049, 12, 31)
STYLES = ("short", "medium", "long", "full")
SKELETONS = ("yMd", "yMEd", "yMMMd", "yMMMEd")
FIELDS = {"y": "year", "M": "month", "L": "month", "d": "day"}
ASKED = "year year year year - month month - day day".split()  # the field of each character of an answer
MOST = 1_000_000
ANY = "any"  # stands for the locale where it is not said
UNSAID = 0.25  # of the rows whose text means one date in all locales


class Dates(ItemSource):
    """Read a locale and a date as people there write it, character by character; write YYYY-MM-DD.

    What is read: the locale as one symbol, then "Montag, 5. Januar 1987", "1987年1月5日", "05/01/1987", ... in the
    short, medium, long and full form of the locale and in four more of its patterns. Without the locale 05/01/1987
    would have two answers. A year of two digits has one, because all dates lie in the hundred years 1950 to 2049.
    Patterns that would still let one text of a locale mean two dates are left out. Of the texts that mean one date
    in all of the locales, a quarter has the symbol "any" in place of the locale.

    119 symbols; 11 symbols are written, the end counted. Dates, not texts, are split, so that no date of
    validation was ever read. Cross-attention solves it by finding the field, wherever the pattern has it: gold of the
    roles year, month and day are the characters of the field that a digit comes from (for "87" the same two for all
    four digits of 1987). Separators and the end have none.

    A solved model is right in all. "no source": the symbol that is the most frequent one at its place, of all symbols
    and of whole rows.

    The forms come from the CLDR, through `babel`; licence: Unicode-3.0 (babel itself: BSD-3-Clause).

    Args:
        n_train, n_val: rows drawn of each split.
        val_one_in: one date in so many belongs to validation, by a hash of the date.

    Raises ConfigError for sizes that cannot be.
    """

    name = "dates"
    gives = "seq2seq"
    example = "12 March 2024"
    roles = ("year", "month", "day")

    def __init__(self, n_train: int = 65536, n_val: int = 2048, val_one_in: int = 8) -> None:
        for name, value in [("n_train", n_train), ("n_val", n_val)]:
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST:
                raise ConfigError(f"data.source.{name} ({value!r}) must be a whole number from 1 to {MOST:,}")
        self.n_train, self.n_val, self.val_one_in = n_train, n_val, check_share("val_one_in", val_one_in)

    def depends_on(self) -> dict[str, Any]:
        return {"babel": babel_version(), "sizes": [self.n_train, self.n_val, self.val_one_in], "unsaid": UNSAID}

    def read(self, text: str) -> list[str]:
        """A locale and a space may stand before the date, as in "en_US 3/4/1987"; else it is any."""
        first, space, rest = text.partition(" ")
        return [first, *rest] if space and first in (*LOCALES, ANY) else [ANY, *text]

    def split(self, progress: Callable[[str], object]) -> Split:
        patterns = {locale: patterns_of(locale) for locale in LOCALES}
        clear = clear_everywhere(patterns)
        every = [FIRST + datetime.timedelta(days=i) for i in range((LAST - FIRST).days + 1)]
        is_val = [in_val(date.isoformat(), self.val_one_in) for date in every]
        rng = np.random.default_rng(0)
        found: dict[bool, list[Item]] = {}
        for val, n in ((False, self.n_train), (True, self.n_val)):
            dates = [date for date, v in zip(every, is_val, strict=True) if v == val]
            found[val] = [self._drawn(rng, dates, patterns, clear) for _ in range(n)]
        record = {
            "licence": "CLDR: Unicode-3.0; babel: BSD-3-Clause",
            "babel": babel_version(),
            "locales": {locale: list(found) for locale, found in patterns.items()},
            "dates": f"{FIRST} to {LAST}",
            "split": f"by date: stable hash, one in {self.val_one_in} for validation",
        }
        return Split(found[False], found[True], record, _no_source(found[False], found[True]))

    def _drawn(
        self,
        rng: np.random.Generator,
        dates: list[datetime.date],
        patterns: dict[str, list[str]],
        clear: set[tuple[str, str]],
    ) -> Item:
        locale = LOCALES[rng.integers(len(LOCALES))]
        pattern = patterns[locale][rng.integers(len(patterns[locale]))]
        date = dates[rng.integers(len(dates))]
        return item(locale, pattern, date, said=rng.random() >= UNSAID or (locale, pattern) not in clear)


def babel_version() -> str:
    """The version of babel. Raises DataError where it is not installed."""
    try:
        import babel
    except ImportError:
        raise DataError('data=dates needs babel, which is not installed: pip install "babel>=2.14,<3"') from None
    return babel.__version__


def item(locale: str, pattern: str, date: datetime.date, said: bool = True) -> Item:
    """One date as an item: the locale, the characters, and which of them each character of the answer comes from.

    Args:
        locale, pattern: in which the date is written.
        date: to be read.
        said: whether the locale stands before it; otherwise ANY does.
    """
    text, spans = written(locale, pattern, date)
    # the locale stands before the text
    columns = {field: [range(start + 1, end + 1)] for field, (start, end) in spans.items()}
    gold = {role: [columns[role][0] if asked == role else () for asked in ASKED] for role in ("year", "month", "day")}
    return Item([locale if said else ANY, *text], list(date.isoformat()), gold)


def written(locale: str, pattern: str, date: datetime.date) -> tuple[str, dict[str, tuple[int, int]]]:
    """A date in a pattern of the CLDR, and where year, month and day stand in it (first character, last + 1)."""
    from babel.dates import DateTimeFormat

    values = DateTimeFormat(date, _locale(locale))
    text, spans = "", {}
    for kind, value in _tokens(pattern):
        if kind == "chars":
            text += value
            continue
        part = values["".join([value[0]] * value[1])]
        if value[0] in FIELDS:
            spans[FIELDS[value[0]]] = (len(text), len(text) + len(part))
        text += part
    return text, spans


def patterns_of(locale: str) -> list[str]:
    """The patterns of a locale that are used: none of them lets one text mean two dates."""
    known = _locale(locale)
    wanted = [known.date_formats[style].pattern for style in STYLES]
    wanted += [known.datetime_skeletons[name].pattern for name in SKELETONS if name in known.datetime_skeletons]
    chosen: dict[str, list[str]] = {}
    for pattern in dict.fromkeys(wanted):
        fields = [FIELDS.get(value[0], value[0]) for kind, value in _tokens(pattern) if kind == "field"]
        if {"year", "month", "day"} <= set(fields):
            # two patterns that differ in the order of their fields alone would be told apart by nothing
            looks = "".join(value if kind == "chars" else _looks(*value) for kind, value in _tokens(pattern))
            same = chosen.setdefault(looks, [])
            if all(_order(other) == _order(pattern) for other in same):
                same.append(pattern)
    return [pattern for same in chosen.values() for pattern in same]


def clear_everywhere(patterns: Mapping[str, Sequence[str]]) -> set[tuple[str, str]]:
    """The locales and patterns whose texts mean one date whatever the locale.

    Args:
        patterns: of each locale, as `patterns_of` gives them.
    """
    orders: dict[str, set[str]] = {}
    for pattern in itertools.chain(*patterns.values()):
        orders.setdefault(_shape(pattern), set()).add(str(_order(pattern)))
    return {(locale, one) for locale, some in patterns.items() for one in some if len(orders[_shape(one)]) == 1}


def _shape(pattern: str) -> str:
    """What a reader of no language sees: words, numbers of one or two digits, years of four, and what is between."""

    def shape(letter: str, count: int) -> str:
        if letter == "y":
            return "#" if count == 2 else "####"
        return "#" if letter == "d" or (letter in "ML" and count <= 2) else "@"

    return "".join(value if kind == "chars" else shape(*value) for kind, value in _tokens(pattern))


def _looks(letter: str, count: int) -> str:
    """How a field looks: a number of whatever width, or the kind of word it is."""
    return letter * count if letter not in FIELDS or (letter in "ML" and count > 2) else "#"


def _order(pattern: str) -> list[str]:
    return [FIELDS[value[0]] for kind, value in _tokens(pattern) if kind == "field" and value[0] in FIELDS]


@cache
def _tokens(pattern: str) -> list[tuple[str, Any]]:
    from babel.dates import tokenize_pattern

    return tokenize_pattern(pattern)


@cache
def _locale(name: str) -> Locale:
    from babel import Locale

    return Locale.parse(name)


def _no_source(train: list[Item], val: list[Item]) -> dict[str, float]:
    """Share of right symbols, the end counted, and of whole rows, for the most frequent symbol at each place."""
    columns = list(zip(*(item.answer for item in train), strict=True))
    guess = [max(sorted(set(column)), key=column.count) for column in columns]
    right = np.array([[a == b for a, b in zip(guess, item.answer, strict=True)] for item in val])
    n = right.shape[1]
    return {
        "no source": float((right.sum() + len(val)) / (len(val) * (n + 1))),
        "no source, whole rows": float(right.all(1).mean()),
    }
