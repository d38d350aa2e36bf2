"""demo=data: every data set that needs no network is shown, and its arrows spell what stands at their ends."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from demos import composed, text_of
from parts import some_by_default

from minitf.commands.demo import show
from minitf.config import check, config_dir, group_options
from minitf.data.base import BaseData
from minitf.demo.example import example, shown
from minitf.demo.text import WIDTH, width
from minitf.errors import ConfigError

FILES = {name: (config_dir() / f"data/{name}.yaml").read_text(encoding="utf-8") for name in group_options("data")}
SYNTHETIC = [name for name, text in FILES.items() if ".synthetic." in text]
FORMS = [[f"data={name}", f"data.task.form={form}"] for name in ("copy", "reverse") for form in ("answers", "tag")]
ARROW = re.compile(r'  (?:label|place +(\d+)): "(.+?)" +<- (.*)')
END = re.compile(r'(\d+)(?:-(\d+))? "(.+?)"')


def blocks(text: str) -> list[dict[str, list[str]]]:
    """The examples: the cells of each line of their grids, those of wrapped lines together, and the arrows."""
    found: list[dict[str, list[str]]] = []
    for line in text.splitlines():
        if re.match(r"Row [\d,]+ of", line):
            found.append({"arrows": []})
        elif found and ARROW.match(line):
            found[-1]["arrows"].append(line)
        elif found and (cells := re.match(r"  (source|token|decoder) +(.*)", line)):
            found[-1].setdefault(cells[1], []).extend(re.split(r" +", cells[2]))
    return found


@pytest.mark.parametrize(
    "overrides", some_by_default([*([f"data={name}"] for name in SYNTHETIC), *FORMS], 2), ids=" ".join
)
def test_arrows_spell_what_stands_at_their_ends(overrides):
    text = text_of("demo=data", *overrides, "demo.arrows=99", "demo.tokens=999")
    for part in ("licence", "kept apart", "Share of right answers:", "no attention", "a model that has solved it"):
        assert f"\n  {part}" in text or part in text.splitlines(), part
    examples = blocks(text)
    assert len(examples) == 3
    for found in examples:
        tokens = found["source" if "source" in found else "token"]
        assert found["arrows"]
        for line in found["arrows"]:
            ends = END.findall(ARROW.match(line)[3])
            assert ends
            for first, last, spelt in ends:
                assert spelt == " ".join(tokens[int(first) : int(last or first) + 1])
    assert not [line for line in text.splitlines() if width(line) > WIDTH]


@pytest.mark.parametrize("name", ["repeat", "copy", "reverse", "sort", "bigram_backcopy"])
def test_where_an_answer_is_a_copy_the_arrow_leads_to_it(name):
    for found in blocks(text_of("demo=data", f"data={name}")):
        for line in found["arrows"]:
            _, answer, ends = ARROW.match(line).groups()
            assert {word for *_, spelt in END.findall(ends) for word in spelt.split()} == {answer}


def test_repeat_in_full():
    text = text_of(
        "demo=data", "data.task.n_symbols=4", "data.task.most=4", "data.seq_len=9", "data.n_val=2", "demo.arrows=2"
    )
    lines = text.split("of the validation split:\n")[1].splitlines()
    segment = lines[1].split()[2:6]
    assert lines[0].split() == ["place", *map(str, range(9))]
    assert lines[1].split() == ["token", "[bos]", *segment, *segment]
    assert lines[2].split() == ["answer", *segment, segment[0]]
    assert lines[1].index(segment[0], 10) == lines[0].index("1")  # in columns
    assert lines[4:7] == [
        f'  place  4: "{segment[0]}" <- repeat: 1 "{segment[0]}"',
        f'  place  5: "{segment[1]}" <- repeat: 2 "{segment[1]}"',
        "  ... 2 of 5 places; demo.arrows=5 shows all",
    ]
    assert "  settings    data.task.n_symbols=4, data.task.least=4, data.task.most=4\n" in text
    assert "  no attention                0.333\n" in text  # 1 / (n_symbols - 1)


def test_long_rows_are_cut_with_a_note():
    text = text_of("demo=data", "data=copy", "data.task.least=15", "demo.tokens=5", "demo.n=2")
    assert text.count("  ... 5 of 31 tokens; demo.tokens=31 shows all\n") == 2


def test_more_examples_than_rows_are_all_rows():
    text = text_of("demo=data", "data=majority", "data.n_val=3", "demo.n=9")
    assert [line for line in text.splitlines() if line.startswith("Row")] == [
        f"Row {i} of 3 of the validation split:" for i in range(3)
    ]


def test_text_is_shown_in_tokens(tmp_path, monkeypatch):
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))
    (tmp_path / "a.txt").write_text("猫追球，\tit is tired.\n" * 200, encoding="utf-8")
    given = ["data=text_files", f"data.source.path={tmp_path / 'a.txt'}", "data/tokenizer=char", "data.seq_len=24"]
    text = text_of("demo=data", *given, "demo.n=1")
    place, token = text.split("of the validation split:\n")[1].splitlines()[:2]
    assert token.split()[:8] == ["token", "[bos]", "猫", "追", "球", "，", "\\t", "i"]
    assert width(token[: token.index("i")]) == width(place[: place.index("6")])
    assert "(␣ is a space)" in text
    assert "the user's own text" in text
    assert "Bits per byte of simple models:" in text
    assert "<-" not in text


class Dates(BaseData):
    """Stands for real data of symbols that are no numbers."""

    gives, roles, name = "seq2seq", ("year", "day"), "dates"
    facts = prepare = steps = val_batches = None

    def symbols(self, ids):
        return [["[end]", "年", "1", "9", " ", "5"][i] for i in ids]

    def answer_symbols(self, ids):
        return self.symbols(ids)


def test_roles_runs_and_wide_characters():
    row = {"src": [2, 3, 1, 4, 5, 0, 0], "src_pos": [0, 1, 2, 3, 4, -1, -1], "ids": [0, 3, 5], "pos": [0, 1, 2]}
    row |= {"targets": [3, 5, 0], "gold.year": [[1, 0], [-1, -1], [-1, -1]], "gold.day": [[-1], [4], [-1]]}
    lines = example(Dates(8, 1, 0), {name: torch.tensor(value) for name, value in row.items()}, 9, 9)
    assert lines == [
        "  place   0  1  2   3  4",
        "  source  1  9  年  ␣  5",
        "",
        "  place    0      1  2",
        "  decoder  [end]  9  5",
        "  answer   9      5  [end]",
        "",
        '  place  0: "9" <- year: 0-1 "1 9"',
        '  place  1: "5" <- day: 4 "5"',
        "  (␣ is a space)",
    ]


def test_a_token_fits_a_column():
    assert shown("\n") == "\\n"
    assert shown(" a b") == "␣a␣b"
    assert width(shown("x" * 40)) == width(shown("猫" * 40 + "x")) + 1 == 24


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data=sort", "data.task.n_symbols=x"], "data.task.n_symbols must be a whole number such as 16"),
        (["data.vocab_size=4"], "data.vocab_size cannot be set"),
        (["data=hub"], "give data.source.dataset="),
    ],
)
def test_what_is_typed_is_checked(overrides, message):
    typed = ["demo=data", *overrides]
    with pytest.raises(ConfigError, match=message):
        check(composed(*typed), "demo", typed)


def test_values_are_refused_in_the_words_of_the_data():
    for wrong, message in [("data.task.n_symbols=2", "must be a whole number from 3"), ("demo.n=0", "demo.n must be")]:
        with pytest.raises(ConfigError, match=message):
            text_of("demo=data", wrong)


def test_no_other_demo_takes_data():
    job = SimpleNamespace(choices={"demo": "shapes", "data": "copy"})
    with pytest.raises(ConfigError, match="take demo=data data=copy"):
        show(composed("demo=shapes", "data=copy"), job)


@pytest.mark.parametrize("overrides", [[], ["demo=data"], ["demo=data", "data=reverse", "data.task.form=tag"]])
def test_other_demos_have_their_plain_numbers(overrides):
    cfg = composed(*overrides)
    check(cfg, "demo", overrides)
    assert cfg.data.vocab_size == (None if overrides else 65)


@pytest.mark.slow
def test_the_command_line(tmp_path):
    script = Path(__file__).parents[2] / "scripts" / "demo.py"
    env = os.environ | {"PYTHONPATH": str(script.parents[1]), "PYTHONIOENCODING": "ascii"}

    def run(*typed):
        return subprocess.run([sys.executable, str(script), *typed], cwd=tmp_path, env=env, capture_output=True)

    done = run("demo=data", "data=sort", "data.task.n_symbols=5", "data.seq_len=12")
    assert done.returncode == 0, done.stderr
    assert "data.task.n_symbols=5" in done.stdout.decode("utf-8")
    assert not list(tmp_path.iterdir())
    for typed, message in [
        (["demo=data", "data=srt"], "error: data=srt: there is no such option; data can be "),
        (["demo=data", "data.task.n_symbol=5"], "error: 'data.task.n_symbol' is no key or group of 'demo'; nearest: "),
    ]:
        done = run(*typed)
        assert done.returncode == 2
        assert done.stderr.decode().startswith(message)
        assert done.stderr.count(b"\n") == 1
