"""Chinese phrases, each character with its reading."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from minitf.data.items import Item, Split, in_val
from minitf.data.items.shared import SharedOut
from minitf.data.wheel import Wheel
from minitf.errors import ConfigError

WHEEL = Wheel(
    package="pypinyin==0.55.0",
    file="pypinyin-0.55.0-py2.py3-none-any.whl",
    sha256="d53b1e8ad2cdb815fb2cb604ed3123372f5a28c6f447571244aca36fc62a286f",
    wanted_by="data=pinyin",
    instead="data=histogram",
)


class Pinyin(SharedOut):
    """Tag every character of a phrase with its syllable, the tone included: 银行 is yín háng, 行走 is xíng zǒu.

    47 109 phrases of 2 to 10 characters; about 5 200 characters are read, 1 247 syllables are classes. Phrases are
    split by a hash. What a character that no phrase of training has (0.8 % of those in validation) is called, nobody
    can know from phrases. Therefore training also reads every character of the data once by itself, with the first
    reading in the package's own dictionary of characters; validation asks for phrases alone.

    Most characters have one reading; for the others attention must look at their neighbours, and at the following
    tone for 一 and 不 (the package marks that in some phrases and not in others). Baselines, of characters and of whole
    phrases: "no context": the most frequent reading of the character in training, the ceiling of what can be known
    without context; "no context, with a dictionary": without characters in training, the same where those that
    training has not are looked up; "neighbours": the most frequent reading of the character between the same two
    neighbours, else beside one of them, else anywhere.

    Licence: MIT (the package pypinyin, which is read as a file and not installed).

    Args:
        val_one_in: one phrase in so many belongs to validation.
        characters: whether training reads single characters too; without, those that only validation has are one
            unknown symbol.

    Raises ConfigError for a share that cannot be, or no bool.
    """

    name = "pinyin"
    gives = "tag"
    wheel = WHEEL

    def __init__(self, val_one_in: int = 10, characters: bool = True) -> None:
        super().__init__(val_one_in)
        if not isinstance(characters, bool):
            raise ConfigError(f"data.source.characters ({characters!r}) must be true or false")
        self.characters = characters

    def depends_on(self) -> dict[str, Any]:
        return {**super().depends_on(), "characters": self.characters}

    def split(self, progress: Callable[[str], object]) -> Split:
        with WHEEL.archive() as archive:
            phrases = json.loads(archive.read("pypinyin/phrases_dict.json"))
            listed = json.loads(archive.read("pypinyin/pinyin_dict.json"))
        items = list(map(_item, *zip(*readings(phrases).items(), strict=True)))
        halves = {val: [i for i in items if in_val("".join(i.source), self.val_one_in) == val] for val in (False, True)}
        train, val = halves[False], halves[True]
        first = {chr(int(code)): known.split(",")[0] for code, known in listed.items()}
        single = singles(items, first) if self.characters else []
        train = train + single
        record = {
            "licence": "MIT",
            "package": WHEEL.package,
            "package_sha256": WHEEL.sha256,
            "split": f"by phrase: stable hash, one in {self.val_one_in} for validation",
            "phrases_without_one_answer": len(phrases) - len(items),
            "single_characters_in_training": len(single),
        }
        baselines = no_context(train, val, {} if self.characters else first)
        return Split(train, val, record, baselines | neighbours(train, val))


def readings(phrases: Mapping[str, list[list[str]]]) -> dict[str, list[str]]:
    """The syllables of each phrase; phrases of which the package gives several readings are left out."""
    return {
        phrase: [known[0] for known in syllables]
        for phrase, syllables in phrases.items()
        if len(phrase) == len(syllables) and all(len(known) == 1 for known in syllables)
    }


def singles(items: Iterable[Item], dictionary: Mapping[str, str]) -> list[Item]:
    """Every character of `items` by itself, where the dictionary has it with a syllable that `items` know."""
    syllables = {syllable for item in items for syllable in item.answer}
    characters = sorted({character for item in items for character in item.source})
    return [_item(c, [dictionary[c]]) for c in characters if dictionary.get(c) in syllables]


def no_context(train: list[Item], val: list[Item], dictionary: Mapping[str, str]) -> dict[str, float]:
    """Share of right syllables, and of phrases that are right as a whole, without looking at the neighbours.

    Args:
        train, val: phrases.
        dictionary: readings of characters that training may not have; empty: there is none.
    """
    best = _most_frequent(train, lambda source, i: source[i])
    tables = {"no context": best} | ({"no context, with a dictionary": {**dictionary, **best}} if dictionary else {})
    found = {}
    for name, table in tables.items():
        found |= _shares(name, val, lambda source, i, table=table: table.get(source[i]))
    return found


def neighbours(train: list[Item], val: list[Item]) -> dict[str, float]:
    """The same shares, of what was read most often with the same neighbours; with fewer where these are new."""
    keys = [
        lambda source, i: (source[i], *_beside(source, i)),
        lambda source, i: (source[i], _beside(source, i)[1]),
        lambda source, i: (source[i], _beside(source, i)[0]),
        lambda source, i: source[i],
    ]
    tables = [_most_frequent(train, key) for key in keys]

    def read(source: Sequence[str], i: int) -> str | None:
        return next((t[key(source, i)] for t, key in zip(tables, keys, strict=True) if key(source, i) in t), None)

    return _shares("neighbours", val, read)


def _beside(source: Sequence[str], i: int) -> tuple[str, str]:
    """The characters before and after place i; "" at the ends."""
    return "".join(source[max(i - 1, 0) : i]), "".join(source[i + 1 : i + 2])


def _most_frequent(items: list[Item], key: Callable[[Sequence[str], int], Any]) -> dict[Any, str]:
    """The most frequent syllable of each key of a source and a place."""
    counts: dict[Any, Counter] = defaultdict(Counter)
    for item in items:
        for i, syllable in enumerate(item.answer):
            counts[key(item.source, i)][syllable] += 1
    return {key: max(sorted(seen), key=seen.get) for key, seen in counts.items()}


def _shares(name: str, val: list[Item], read: Callable[[Sequence[str], int], str | None]) -> dict[str, float]:
    """Shares of right syllables and of phrases that are right as a whole."""
    right = [[read(item.source, i) == syllable for i, syllable in enumerate(item.answer)] for item in val]
    return {name: sum(map(sum, right)) / sum(map(len, right)), f"{name}, whole rows": sum(map(all, right)) / len(val)}


def _item(phrase: str, syllables: list[str]) -> Item:
    return Item(list(phrase), syllables)
