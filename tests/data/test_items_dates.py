"""Dates: written as babel writes them, every digit traced to the characters of its field, one answer for each text."""

import datetime
import sys

import babel.dates as babel_dates
import pytest

from minitf.data.items.dates import (
    ANY,
    ASKED,
    FIRST,
    LAST,
    LOCALES,
    Dates,
    clear_everywhere,
    item,
    patterns_of,
    written,
)
from minitf.errors import DataError

DAYS = [datetime.date(*d) for d in ((1950, 1, 1), (1987, 10, 5), (2000, 2, 29), (2012, 12, 11), (2049, 9, 30))]


@pytest.mark.parametrize("locale", LOCALES)
def test_every_pattern_is_written_as_babel_does_and_its_fields_are_found(locale):
    assert len(patterns_of(locale)) >= 4
    for pattern in patterns_of(locale):
        for date in DAYS:
            text, spans = written(locale, pattern, date)
            assert text == babel_dates.format_date(date, pattern, locale)
            parts = {field: text[start:end] for field, (start, end) in spans.items()}
            assert int(parts["day"]) == date.day
            assert int(parts["year"]) in (date.year, date.year % 100)
            digits = "".join(c for c in parts["month"] if c.isdecimal())
            names = {babel_dates.format_date(date, f, locale) for f in ("MMM", "MMMM", "LLL", "LLLL")}
            assert parts["month"] in names or int(digits) == date.month


def test_gold_by_hand():
    made = item("de", "EEEE, d. MMMM y", datetime.date(1987, 1, 5))
    assert made.source == ["de", *"Montag, 5. Januar 1987"]
    assert "".join(made.answer) == "1987-01-05"
    cited = {role: [[made.source[c] for c in columns] for columns in gold] for role, gold in made.gold.items()}
    assert cited["year"] == [list("1987")] * 4 + [[]] * 6
    assert cited["month"] == [[]] * 5 + [list("Januar")] * 2 + [[]] * 3
    assert cited["day"] == [[]] * 8 + [["5"]] * 2
    short = item("en_US", "M/d/yy", datetime.date(1987, 10, 5))
    assert list(short.gold["year"][0]) == [6, 7]
    assert [short.source[c] for c in short.gold["year"][0]] == ["8", "7"]


def test_each_digit_has_gold_of_one_role_and_the_rest_none():
    made = Dates(n_train=300, n_val=5).split(print).train
    for one in made:
        for place, asked in enumerate(ASKED):
            assert [role for role in Dates.roles if one.gold[role][place]] == ([] if asked == "-" else [asked])


def answers(days):
    """All texts of a locale with the dates that they can mean."""
    for locale in LOCALES:
        found = {}
        for pattern in patterns_of(locale):
            for date in days:
                found.setdefault(written(locale, pattern, date)[0], set()).add(date)
        yield locale, found


@pytest.mark.slow
def test_no_text_of_a_locale_means_two_dates():
    days = [FIRST + datetime.timedelta(days=i) for i in range((LAST - FIRST).days + 1)]
    # those whose numbers could be taken for another field's, and some more
    days = [d for i, d in enumerate(days) if d.year % 100 <= 31 or i % 17 == 0]
    for locale, found in answers(days):
        assert [text for text, dates in found.items() if len(dates) > 1] == [], locale


def test_no_text_of_a_locale_means_two_dates_of_a_few_years():
    days = [
        datetime.date(year, month, day)
        for year in (2001, 2010, 2012)
        for month in range(1, 13)
        for day in (1, 2, 10, 12)
    ]
    for locale, found in answers(days):
        assert all(len(dates) == 1 for dates in found.values()), locale


def test_where_no_locale_is_said_a_text_means_one_date():
    patterns = {locale: patterns_of(locale) for locale in LOCALES}
    clear = clear_everywhere(patterns)
    days = [datetime.date(y, m, d) for y in (2001, 2010, 2012) for m in range(1, 13) for d in (1, 2, 10, 12, 20)]
    found, without_locale = {}, set()
    for locale in LOCALES:
        for pattern in patterns[locale]:
            for date in days:
                text = written(locale, pattern, date)[0]
                found.setdefault(text, set()).add(date)
                if (locale, pattern) in clear:
                    without_locale.add(text)
    assert [text for text in without_locale if len(found[text]) > 1] == []
    assert {locale for locale, _ in clear} == set(LOCALES)
    assert ("en_GB", "d MMMM y") in clear
    assert ("en_GB", "dd/MM/y") not in clear
    drawn = Dates(n_train=2000, n_val=5).split(print).train
    unsaid = ["".join(one.source[1:]) for one in drawn if one.source[0] == ANY]
    assert 0.1 < len(unsaid) / len(drawn) < 0.25
    assert not any(text.count("/") == 2 and text[:4].isdecimal() is False for text in unsaid if text[0].isdecimal())


def test_a_typed_date_may_say_its_locale():
    source = Dates()
    assert source.read("en_US 3/4/87") == ["en_US", *"3/4/87"]
    assert source.read("12 March 2024") == [ANY, *"12 March 2024"]
    assert source.read("any 5. Mai 2024") == [ANY, *"5. Mai 2024"]
    assert source.read("de") == [ANY, "d", "e"]


def test_without_babel_the_way_out_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "babel", None)
    with pytest.raises(DataError, match='pip install "babel'):
        Dates().depends_on()
