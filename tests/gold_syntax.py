"""Gold syntax for tests: sentences in English and Chinese with the head of each word.

The file is no part of minitf. It lies in `shared/data` in or beside the checkout, or where MINITF_SHARED_DATA says;
without it the tests that need it are skipped.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

NAME = "ud_pud_en_zh_60.tsv"
COLUMNS = "sent_id lang index form upos head deprel".split()


@dataclass(frozen=True)
class Sentence:
    """A sentence of one language, word by word.

    Args:
        name: the same in each language.
        tokens: its words.
        tags: their parts of speech.
        heads: for each word the place of the one that it depends on, from 0; None for the root.
        relations: how it depends on it.
    """

    name: str
    tokens: list[str]
    tags: list[str]
    heads: list[int | None]
    relations: list[str]


def find() -> Path:
    """The file. Skips the test where there is none."""
    said = os.environ.get("MINITF_SHARED_DATA")
    checkout = Path(__file__).resolve().parents[1]
    places = [Path(said)] if said else [folder / "shared" / "data" for folder in (checkout, checkout.parent)]
    for place in places:
        if (place / NAME).is_file():
            return place / NAME
    pytest.skip(
        f"there is no {NAME} in {said or 'shared/data beside the checkout'}: MINITF_SHARED_DATA may name its folder"
    )


def read(path: Path) -> dict[str, list[Sentence]]:
    """The sentences of each language, in their order. Raises ValueError for anything else than such a file."""
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    if head.removeprefix("#").split() != COLUMNS:
        raise ValueError(f"{path.name} has other columns than {COLUMNS}: {head}")
    found: dict[str, dict[str, Sentence]] = {}
    for line in lines:
        name, language, index, form, tag, head, relation = line.split("\t")
        sentence = found.setdefault(language, {}).setdefault(name, Sentence(name, [], [], [], []))
        if int(index) != len(sentence.tokens) + 1:
            raise ValueError(f"{path.name}: word {index} of {name} ({language}) does not follow the one before")
        sentence.tokens.append(form)
        sentence.tags.append(tag)
        sentence.heads.append(int(head) - 1 if int(head) else None)
        sentence.relations.append(relation)
    return {language: list(sentences.values()) for language, sentences in found.items()}


def gold() -> dict[str, list[Sentence]]:
    """The sentences of each language: "en" and "zh". Skips the test where the file is not there."""
    return read(find())
