"""demo=claims: every statement is there once, and what shall decide it exists."""

import ast
import itertools
import json
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from demos import composed, text_of

from minitf.config import check, compose, group_options
from minitf.demo import claims
from minitf.demo.text import WIDTH
from minitf.errors import ConfigError
from minitf.studies.study import load

ROOT = Path(__file__).parents[2]
CLAIMS = claims.all_claims()
# masks, laws and mistakes; training; doubtful statements, two of which have a second half
ASKED = [f"{letter}{n}" for letter, last in (("E", 18), ("T", 11), ("C", 25)) for n in range(1, last + 1)]
ASKED += ["C1b", "C4b"]
STUDIES = {name: set(load(name).covers) for name in group_options("study")}
NOTHING_DECIDES = {"C15", "C22", "C24"}


@cache
def names_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_statement_is_there_once():
    text = Path(claims.__file__).with_name("claims.yaml").read_text(encoding="utf-8")
    counted = Counter(re.findall(r"^  (\w+):$", text, re.MULTILINE))  # a key that comes twice is lost when it is read
    assert set(counted.values()) == {1}
    assert counted.keys() == CLAIMS.keys()
    assert set(ASKED) <= CLAIMS.keys()
    assert len({claim.says for claim in CLAIMS.values()}) == len(CLAIMS)


@pytest.mark.parametrize("item", sorted({item for claim in CLAIMS.values() for item in claim.by}))
def test_what_decides_exists(item):
    first, *choices = item.split()
    kind, _, name = first.partition("=")
    if first.startswith("tests/"):
        path, _, test = item.partition("::")
        assert test in names_of(path)
    elif kind == "study":
        assert name in STUDIES
    elif kind == "+bug":
        assert name in group_options("bug")
    elif kind == "demo":
        assert name in group_options("demo")
        check(composed(*item.split()), "demo", item.split())
    else:
        check(compose(first, choices), first, choices)


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_studies_and_statements_name_each_other(name):
    assert STUDIES[name] == {claim.id for claim in CLAIMS.values() if f"study={name}" in claim.by}


def test_what_no_study_decides_has_an_answer():
    for claim in CLAIMS.values():
        assert claim.found or all(item.startswith("study=") for item in claim.by), claim.id
    assert {claim.id for claim in CLAIMS.values() if not claim.by} == NOTHING_DECIDES


def test_one_statement_or_those_of_a_letter_can_be_asked_for(monkeypatch):
    monkeypatch.setattr("sys.argv", ["minitf-demo"])
    told = text_of("demo=claims", "id=C18")
    assert "  minitf-ablate study=settled\n" in told
    told = text_of("demo=claims", "id=C4b")
    assert "  minitf-demo demo=pronoun\n" in told
    assert "-> In this example they leave 3.2 times less" in told
    assert "C5" not in told
    of_letter = text_of("demo=claims", "id=t")
    assert len(re.findall(r"^T\d", of_letter, re.MULTILINE)) == 11
    assert not re.search(r"^[^T]\d", of_letter, re.MULTILINE)
    assert len(re.findall(r"^[A-Z]\d", text_of("demo=claims"), re.MULTILINE)) == len(CLAIMS)


@pytest.fixture
def decided(tmp_path, monkeypatch):
    studies = {
        "scale_training": {"verdict": "supported under condition", "why": "variance 1", "seeds": 3, "seconds": 145.7},
        "scale_longer": {
            "verdict": "undecided",
            "why": "open: heads of 64, 1200 steps | " * 6,
            "seeds": 1,
            "seconds": 9,
        },
        "scale_at_init": {"verdict": "supported", "why": "", "seeds": 3, "seconds": 6},
    }
    known = {"date": "2026-11-30", "versions": "minitf 0.1.0, torch 2.13.0", "studies": studies}
    path = tmp_path / "verdicts.json"
    path.write_text(json.dumps(known), encoding="utf-8")
    monkeypatch.setattr(claims, "VERDICTS", path)
    monkeypatch.setattr("sys.argv", ["minitf-demo"])
    return known


def test_below_each_study_stands_what_it_decided(decided):
    lines = text_of("demo=claims", "id=C4").splitlines()
    under = dict(itertools.pairwise(lines))
    beginning = {line.split()[1]: under[line] for line in lines if "minitf-ablate" in line}
    end = "s of CPU, 2026-11-30)"
    assert beginning["study=scale_training"] == f"        -> supported under condition: variance 1 (3 seeds, 146 {end}"
    assert beginning["study=scale_longer"].startswith("        -> undecided: open: heads of 64, 1200 steps | ")
    assert "(1 seed, 9 s" in " ".join("\n".join(lines).split())
    assert "minitf-ablate" in beginning["study=scale_small_init"]  # nothing is known of it
    assert beginning["study=scale_at_init"] == f"        -> supported (3 seeds, 6 {end}"
    assert max(map(len, lines)) <= WIDTH
    head = " ".join("\n".join(lines).split("\n\n")[0].split())
    assert "own claim, which it prints, on 2026-11-30 (minitf 0.1.0, torch 2.13.0)." in head


def test_without_a_file_of_verdicts_nothing_is_said_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "VERDICTS", tmp_path / "none.json")
    told = text_of("demo=claims", "id=C4")
    assert "->" not in told
    assert "own claim" not in told


def test_verdicts_that_are_shipped_are_of_studies_that_exist():
    known = json.loads(claims.VERDICTS.read_text(encoding="utf-8")) if claims.VERDICTS.is_file() else {"studies": {}}
    assert known["studies"].keys() <= STUDIES.keys()
    for item in known["studies"]:
        assert claims.verdict(f"study={item}", known)


def test_the_head_says_that_groups_are_no_verdicts():
    head = " ".join(text_of("demo=claims", "id=B12").split("\n\n")[0].split())
    assert "C are doubtful statements, not false ones, and among E, T and A some are refuted, too. id=C shows" in head


def test_a_long_command_goes_on_in_a_second_line(monkeypatch):
    monkeypatch.setattr("sys.argv", [f"/{'long/' * 15}demo.py"])
    first, second = claims.typed("demo=memory model.d_model=512 model.attention.n_heads=8").splitlines()
    assert first.endswith("/demo.py \\")
    assert second.split() == ["demo=memory", "model.d_model=512", "model.attention.n_heads=8"]


def test_an_unknown_statement_is_refused():
    with pytest.raises(ConfigError, match="id=C44: there is no such statement; nearest: C4"):
        text_of("demo=claims", "id=C44")
