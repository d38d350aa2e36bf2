"""Several processes that prepare the same data, and files of the cache that were damaged."""

import json
import subprocess
import sys

import numpy as np
import pytest

from minitf.data import store
from minitf.data.tokenizer import CharTokenizer

PREPARE = """
import sys, time
from minitf.data.module import DataModule
from minitf.data.text_files import TextFiles
from minitf.data.tokenizer import BPETokenizer
data = DataModule(TextFiles("texts"), BPETokenizer(vocab_size=300), 8, 4, 0)
while time.time() < float(sys.argv[1]):
    pass
for _ in range(3):
    data.prepare(lambda line: None)
print(data.record["sha256"], data.train_batch(1)["ids"].sum().item(), data.n_val_tokens, data.baseline())
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def all_at_once(n, tmp_path):
    """What `n` processes that start together print."""
    import time

    start = str(time.time() + 6)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen([sys.executable, "-c", PREPARE, start], cwd=tmp_path, **pipes) for _ in range(n)]
    done = [process.communicate(timeout=100) for process in running]
    assert [process.returncode for process in running] == [0] * n, done[0][1]
    return {said for said, _ in done}


@pytest.mark.slow
def test_processes_that_prepare_the_same_do_not_hurt_each_other(cache, tmp_path):
    (tmp_path / "texts").mkdir()
    for i in range(60):
        (tmp_path / "texts" / f"{i}.txt").write_text(f"def f{i}(x):\n    return x + {i * i}\n" * 20)
    (expected,) = all_at_once(4, tmp_path)
    (entry,) = (cache / "prepared").iterdir()
    names = {path.name for path in entry.iterdir()}
    assert names == {*store.FILES, "meta.json", "baseline.json"}
    (entry / "train.npy").write_bytes(b"damaged")
    (entry / "baseline.json").write_text('{"bits_per_byte": ')
    assert all_at_once(4, tmp_path) == {expected}
    assert [path.name for path in (cache / "prepared").iterdir()] == [entry.name]
    assert {path.name for path in entry.iterdir()} == names
    assert store.load(entry) is not None


def prepared(n=500):
    return store.Prepared(CharTokenizer().train("abc"), np.arange(n, dtype=np.uint16), np.arange(9, dtype=np.uint16))


def test_any_damage_to_any_file_is_noticed(cache):
    entry = store.entry_folder("facts")
    store.save(entry, prepared())
    for name in (*store.FILES, "meta.json"):
        good = (entry / name).read_bytes()
        half = len(good) // 2
        for bad in (b"", good[:half], good[:half] + bytes([good[half] ^ 1]) + good[half + 1 :], None):
            (entry / name).unlink()
            if bad is not None:
                (entry / name).write_bytes(bad)
            with pytest.raises(ValueError):
                store.load(entry)
            (entry / name).write_bytes(good)
    assert store.load(entry).train.tolist() == list(range(500))


@pytest.mark.parametrize("meta", [[], {}, {"sha256": None}, {"sha256": {"train.npy": 3}}, "text", None])
def test_a_meta_file_of_another_form_is_damage(cache, meta):
    entry = store.entry_folder("facts")
    store.save(entry, prepared())
    (entry / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(ValueError):
        store.load(entry)


def test_an_entry_replaced_while_it_is_read_is_not_mixed(cache, monkeypatch):
    entry = store.entry_folder("facts")
    store.save(entry, prepared())
    load_tokenizer = store.load_tokenizer

    def replaced_here(folder):
        tokenizer = load_tokenizer(folder)
        (entry / "meta.json").unlink()
        store.save(entry, prepared(700))
        return tokenizer

    monkeypatch.setattr(store, "load_tokenizer", replaced_here)
    with pytest.raises(ValueError, match="replaced"):
        store.load(entry)


def test_checked_values_come_back_whole_or_not_at_all(tmp_path):
    path = tmp_path / "sub" / "value.json"
    value = {"bits": 1.25, "texts": ["é 猫 🙂", ""], "none": None}
    assert store.load_checked(path) is None
    store.save_checked(path, value)
    assert store.load_checked(path) == value
    good = path.read_bytes()
    for bad in (
        b"",
        good[:-3],
        good.replace(b"1.25", b"1.24"),
        good.replace("猫".encode(), "犬".encode()),
        b'{"bits": 1.25}',
        b"[]",
        b"\xff",
    ):
        path.write_bytes(bad)
        assert store.load_checked(path) is None
    assert [file.name for file in path.parent.iterdir()] == ["value.json"]
