"""Chinese phrases, each character with its reading."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping

from minitf.data.items import Item, Split, in_val
from minitf.data.items.shared import SharedOut
from minitf.data.wheel import Wheel

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
    split by a hash. Characters that no phrase of training has (0.8 % of those in validation) are one unknown symbol.

    Most characters have one reading; for the others attention must look at their neighbours, and at the following
    tone for 一 and 不. Baselines, of characters and of whole phrases: "no context": the most frequent reading of the
    character in training. "no context, with a dictionary": the same, and for characters that training has not the
    first reading in the package's own dictionary of characters, which no model sees: the ceiling of what can be
    known without context.

    Licence: MIT (the package pypinyin, which is read as a file and not installed).

    Args:
        val_one_in: one phrase in so many belongs to validation.

    Raises ConfigError for a share that cannot be.
    """

    name = "pinyin"
    gives = "tag"
    wheel = WHEEL

    def split(self, progress: Callable[[str], object]) -> Split:
        with WHEEL.archive() as archive:
            phrases = json.loads(archive.read("pypinyin/phrases_dict.json"))
            characters = json.loads(archive.read("pypinyin/pinyin_dict.json"))
        items = list(map(_item, *zip(*readings(phrases).items(), strict=True)))
        halves = {val: [i for i in items if in_val("".join(i.source), self.val_one_in) == val] for val in (False, True)}
        first = {chr(int(code)): known.split(",")[0] for code, known in characters.items()}
        record = {
            "licence": "MIT",
            "package": WHEEL.package,
            "package_sha256": WHEEL.sha256,
            "split": f"by phrase: stable hash, one in {self.val_one_in} for validation",
            "phrases_without_one_answer": len(phrases) - len(items),
        }
        return Split(halves[False], halves[True], record, no_context(halves[False], halves[True], first))


def readings(phrases: Mapping[str, list[list[str]]]) -> dict[str, list[str]]:
    """The syllables of each phrase; phrases of which the package gives several readings are left out."""
    return {
        phrase: [known[0] for known in syllables]
        for phrase, syllables in phrases.items()
        if len(phrase) == len(syllables) and all(len(known) == 1 for known in syllables)
    }


def no_context(train: list[Item], val: list[Item], dictionary: Mapping[str, str]) -> dict[str, float]:
    """Share of right syllables, and of phrases that are right as a whole, without looking at the neighbours."""
    counts: dict[str, Counter] = defaultdict(Counter)
    for item in train:
        for character, syllable in zip(item.source, item.answer, strict=True):
            counts[character][syllable] += 1
    best = {character: max(sorted(seen), key=seen.get) for character, seen in counts.items()}
    found = {}
    for name, table in [("no context", best), ("no context, with a dictionary", {**dictionary, **best})]:
        right = [[table.get(c) == s for c, s in zip(item.source, item.answer, strict=True)] for item in val]
        found[name] = sum(map(sum, right)) / sum(map(len, right))
        found[f"{name}, whole rows"] = sum(map(all, right)) / len(right)
    return found


def _item(phrase: str, syllables: list[str]) -> Item:
    return Item(list(phrase), syllables)
