import os
import threading

import lightning as L
import numpy as np
import pytest
import torch

from minitf.data import ngram, store
from minitf.data.module import DataModule
from minitf.data.text import Documents
from minitf.data.text_files import TextFiles
from minitf.data.tokenizer import BPETokenizer, CharTokenizer
from minitf.errors import ConfigError, DataError


class Given:
    """A source whose documents are given."""

    name = "given"

    def __init__(self, train, val):
        self.train, self.val = train, val

    def documents(self):
        names = [f"file{i}.txt" for i in range(len(self.val))]
        return Documents(list(self.train), list(self.val), {"source": self.name}, names)


TRAIN = [f"def f{i}(x):\n    return x + {i * i}\n" for i in range(60)]
VAL = ["def f(x):\n    return x + 25\n", "", "x + 1\n"]


def module(train=TRAIN, val=VAL, tokenizer=None, seq_len=8, batch_size=4, seed=0):
    return DataModule(Given(train, val), tokenizer or BPETokenizer(vocab_size=280), seq_len, batch_size, seed)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MINITF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def lines():
    return []


def same_ids(a, b):
    return torch.equal(a.train_batch(3)["ids"], b.train_batch(3)["ids"]) and all(
        torch.equal(x["targets"], y["targets"]) for x, y in zip(a.val_batches(), b.val_batches(), strict=True)
    )


def test_documents_are_laid_out_as_bos_and_ids(lines):
    data = module(seq_len=5, batch_size=1).prepare(lines.append)
    tokenizer = data.tokenizer
    expected = [i for text in VAL if text for i in [tokenizer.bos_id, *tokenizer.encode(text)]]
    ids = torch.cat([batch["ids"] for batch in data.val_batches()]).flatten().tolist()
    assert ids[: len(expected) - 1] == expected[:-1]
    targets = torch.cat([batch["targets"] for batch in data.val_batches()]).flatten()
    assert targets[targets != -100].tolist() == expected[1:]
    assert data.n_val_tokens == len(expected)
    assert data.n_train_tokens == sum(1 + len(tokenizer.encode(text)) for text in TRAIN)
    assert data.val_bytes == sum(len(text.encode()) for text in VAL)
    assert data.vocab_size == tokenizer.vocab_size == 280
    assert (data.train_texts, data.val_texts) == (TRAIN, VAL)
    assert any("60 + 3 documents" in line for line in lines)


def test_the_record_holds_plain_values():
    data = module().prepare()
    assert data.record["train_tokens"] == data.n_train_tokens
    assert data.record["tokenizer"] == {"type": "bpe", "vocab_size": 280}
    assert data.record["val_bytes"] == data.val_bytes

    def plain(value):
        if isinstance(value, dict):
            return all(map(plain, value.values()))
        return type(value) in (str, int, float, list)

    assert plain(data.record)


def test_the_tokenizer_sees_the_training_split_only():
    class Watching(CharTokenizer):
        def train(self, texts):
            self.seen = list(texts)
            return super().train(self.seen)

    tokenizer = Watching()
    module(tokenizer=tokenizer).prepare()
    assert tokenizer.seen == TRAIN
    trained = BPETokenizer(vocab_size=280).train(TRAIN)
    assert module(val=["zzzz zzzz zzzz zzzz"]).prepare().tokenizer.encode("zzzz") == trained.encode("zzzz")


@pytest.mark.parametrize(
    ("train", "val", "part", "n"),
    [
        ([], [], "training", 0),
        ([""], [""], "training", 0),
        (TRAIN, [], "validation", 0),
        (["12345"], ["12345"], "training", 6),
        (["0123456789" * 9], ["0123456789"], "validation", 11),
    ],
)
@pytest.mark.parametrize("tokenizer", [CharTokenizer(), BPETokenizer(vocab_size=257)])
def test_too_little_text_is_refused_with_its_numbers(train, val, part, n, tokenizer):
    data = module(train, val, tokenizer, seq_len=64)
    with pytest.raises(DataError, match=rf"the {part} split of given has {n} tokens, but .* 65\."):
        data.prepare()


def test_sizes_are_checked_before_any_work():
    for name, value in [("seq_len", 0), ("batch_size", 0), ("seed", -1), ("seq_len", "many")]:
        with pytest.raises(ConfigError, match=name):
            module(**{name: value})
    data = module()
    with pytest.raises(ConfigError, match="micro"):
        data.plan(n_steps=10, n_micro=3)


def test_characters_that_only_validation_has_are_named_with_their_documents():
    with pytest.raises(
        DataError, match=r"validation \(file1\.txt, file2\.txt\): 'é' \(U\+00E9\), '中' \(U\+4E2D\)"
    ) as e:
        module(val=["return", "é中", "中"], tokenizer=CharTokenizer()).prepare()
    assert "data/tokenizer=bpe" in str(e.value)


# --- the cache


def test_the_second_time_nothing_is_trained(monkeypatch, lines):
    first = module().prepare()
    monkeypatch.setattr(BPETokenizer, "train", None)
    second = module(batch_size=4).prepare(lines.append)
    assert same_ids(first, second)
    assert first.tokenizer.encode("return") == second.tokenizer.encode("return")
    assert any("taken from" in line for line in lines)


def test_another_text_or_recipe_is_another_entry(cache):
    variants = [
        module(),
        module(train=[*TRAIN[:-1], TRAIN[-1] + "#"]),
        module(train=TRAIN[1:], val=[TRAIN[0], *VAL]),
        module(train=["".join(TRAIN)]),
        module(tokenizer=BPETokenizer(vocab_size=270)),
        module(tokenizer=CharTokenizer()),
    ]
    for data in variants:
        data.prepare()
    assert len(list((cache / "prepared").iterdir())) == len(variants)
    module(seq_len=4, batch_size=2, seed=3).prepare()  # windows are cut anew each time
    assert len(list((cache / "prepared").iterdir())) == len(variants)


@pytest.mark.parametrize("name", [*store.FILES, "meta.json"])
@pytest.mark.parametrize("damage", ["truncated", "changed", "missing"])
def test_a_damaged_entry_is_made_anew(cache, lines, name, damage):
    good = module().prepare()
    (entry,) = (cache / "prepared").iterdir()
    content = (entry / name).read_bytes()
    if damage == "missing":
        (entry / name).unlink()
    else:
        changed = content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]
        (entry / name).write_bytes(content[:-10] if damage == "truncated" else changed)
    assert same_ids(module().prepare(lines.append), good)
    assert len([line for line in lines if "damaged" in line]) == 1
    assert not list((cache / "prepared").glob(".part-*"))
    lines.clear()
    module().prepare(lines.append)
    assert any("taken from" in line for line in lines)


def test_several_at_once_do_not_hurt_each_other(cache):
    prepared = store.Prepared(CharTokenizer().train("abc"), np.arange(2000, dtype=np.uint16), np.arange(9))
    entry = store.entry_folder("facts")
    entry.mkdir(parents=True)
    (entry / "meta.json").write_text("damaged")
    barrier, failures = threading.Barrier(8), []

    def prepare():
        try:
            barrier.wait()
            store.save(entry, prepared)
            assert store.load(entry).train.tolist() == prepared.train.tolist()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=prepare) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [path.name for path in (cache / "prepared").iterdir()] == [entry.name]


def test_a_cache_that_cannot_be_written_is_said_and_no_more(cache, lines):
    cache.write_text("a file where the folder should be")
    data = module().prepare(lines.append)
    assert any("cannot be cached" in line and "MINITF_CACHE" in line for line in lines)
    assert data.train_batch(0)["ids"].shape == (4, 8)
    assert data.baseline() > 0


def test_what_a_killed_process_left_is_removed(cache):
    old, new = cache / "prepared" / ".part-old", cache / "prepared" / ".part-new"
    old.mkdir(parents=True)
    new.mkdir()
    os.utime(old, (0, 0))
    module().prepare()
    assert (old.exists(), new.exists()) == (False, True)


def test_preparing_writes_into_the_cache_only(tmp_path, monkeypatch):
    work = tmp_path / "work"
    work.mkdir()
    (work / "text.jsonl").write_text('{"text": "' + "some words " * 200 + '"}\n')
    monkeypatch.chdir(work)
    DataModule(TextFiles("text.jsonl"), CharTokenizer(), 8, 4, 0).prepare()
    assert [path.name for path in work.iterdir()] == ["text.jsonl"]


# --- baseline


def test_the_baseline_is_measured_on_the_same_splits_and_cached(monkeypatch):
    data = module().prepare()
    expected = ngram.witten_bell_bits_per_byte([t.encode() for t in TRAIN], [t.encode() for t in VAL])
    assert data.baseline() == pytest.approx(expected, rel=1e-12)
    monkeypatch.setattr(ngram, "witten_bell_bits_per_byte", None)
    assert module().prepare().baseline() == pytest.approx(expected, rel=1e-12)


def test_a_text_that_changed_meanwhile_has_no_baseline():
    data = module().prepare()
    data.source.val = ["something else"]
    with pytest.raises(DataError, match="has changed"):
        data.baseline()


# --- splits and Lightning


def test_training_and_validation_share_no_place(tmp_path):
    numbers = [f"{i:04d}" for i in range(1000)]  # each word tells its place
    (tmp_path / "numbers.txt").write_text(" ".join(numbers))
    data = DataModule(TextFiles(str(tmp_path / "numbers.txt"), val_fraction=0.1), CharTokenizer(), 64, 8, 0).prepare()

    def words(batches):
        rows = [row for batch in batches for row in batch["ids"].tolist()]
        return {word for row in rows for word in data.tokenizer.decode(row).split() if len(word) == 4}

    trained, validated = words(data.train_stream(n_steps=100)), words(data.val_batches())
    assert len(trained) > 880
    assert len(validated) > 75  # a word that a window cuts is not counted
    assert not trained.intersection(validated)


class Reader(L.LightningModule):
    """Keeps the batches that Lightning gives it."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.read = []

    def training_step(self, batch, index):
        self.read.append(batch["ids"])
        return self.weight * 1.0

    def validation_step(self, batch, index):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(folder, until, checkpoint=None):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = L.Trainer(
        accelerator="cpu",
        max_steps=until,
        accumulate_grad_batches=2,
        enable_checkpointing=False,
        check_val_every_n_epoch=None,
        val_check_interval=6,
        default_root_dir=folder,
        **quiet,
    )
    data, reader = module().prepare(), Reader()
    data.plan(n_steps=until, n_micro=2)
    trainer.fit(reader, datamodule=data, ckpt_path=checkpoint)
    return trainer, reader, data


def test_lightning_reads_the_planned_batches_and_goes_on_exactly(tmp_path):
    _, whole, data = fit(tmp_path, until=12)
    expected = [data.train_batch(step, micro, 2)["ids"] for step in range(12) for micro in range(2)]
    trainer, first, _ = fit(tmp_path, until=5)
    trainer.save_checkpoint(tmp_path / "five.ckpt")
    _, rest, _ = fit(tmp_path, until=12, checkpoint=tmp_path / "five.ckpt")
    for read in (whole.read, first.read + rest.read):
        assert len(read) == len(expected)
        assert all(torch.equal(a, b) for a, b in zip(read, expected, strict=True))
