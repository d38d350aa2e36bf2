"""Every synthetic task: right answers, batches that depend on seed and step only, two splits without a common row."""

from collections import Counter
from functools import cache

import numpy as np
import parts
import pytest
import torch

from minitf.config import build_data, compose, config_dir
from minitf.data.synthetic.majority import Majority
from minitf.data.synthetic.module import SyntheticData, ValRows
from minitf.data.synthetic.reverse import Reverse
from minitf.errors import ConfigError, DataError

SYNTHETIC = "minitf.data.synthetic.module.SyntheticData"
TASKS = [name for name in parts.options("data") if SYNTHETIC in (config_dir() / f"data/{name}.yaml").read_text()]
IGNORED = -100


@cache
def composed(name):
    return compose("train", [f"data={name}"])


def make(name, *overrides):
    cfg = composed(name).copy()
    cfg.merge_with_dotlist(list(overrides))
    return build_data(cfg)


def data(name, *overrides):
    return make(name, *overrides).prepare(lambda line: None)


def real(row, pos):
    return row[pos >= 0].tolist()


def check_reverse(row, made):
    src, wanted = real(row["src"], row["src_pos"]), real(row["targets"], row["pos"])
    end = made.task.n_symbols
    assert wanted == [*src[::-1], end]
    assert real(row["ids"], row["pos"]) == [end, *src[::-1]]


def check_sort_pointer(row, made):
    src, wanted = real(row["src"], row["src_pos"]), real(row["targets"], row["pos"])
    assert [src[place] for place in wanted] == sorted(set(src))
    assert real(row["ids"], row["pos"]) == [made.task.n_numbers, *sorted(src)[:-1]]


def check_majority(row, made):
    (first, n), *rest = Counter(real(row["ids"], row["pos"])).most_common()
    assert first == row["label"]
    assert not rest or rest[0][1] < n


def check_histogram(row, made):
    ids = real(row["ids"], row["pos"])
    assert real(row["targets"], row["pos"]) == [min(ids.count(i), made.task.most) - 1 for i in ids]


CHECKS = {name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")}


def test_every_task_has_its_check():
    assert set(CHECKS) == set(TASKS)


@pytest.mark.parametrize("name", TASKS)
def test_the_answers_are_right_and_only_real_places_are_scored(name):
    made = data(name)
    batch = made.train_batch(3)
    assert len(batch["ids"]) == made.batch_size
    for i in range(made.batch_size):
        row = {key: value[i] for key, value in batch.items() if key != "n_scored"}
        CHECKS[name](row, made)
        for ids, pos in (("src", "src_pos"), ("ids", "pos")):
            if ids in row:
                n = int((row[pos] >= 0).sum())
                assert row[pos].tolist() == [*range(n), *[-1] * (len(row[pos]) - n)]
                assert row[ids].min() >= 0
                assert row[ids].max() < made.facts["src_vocab_size" if ids == "src" else "vocab_size"]
        if "targets" in row:
            assert ((row["targets"] == IGNORED) == (row["pos"] < 0)).all()
    scored = (batch["targets"] != IGNORED).sum() if "targets" in batch else len(batch["label"])
    assert batch["n_scored"] == scored


@pytest.mark.parametrize("name", TASKS)
def test_a_batch_is_a_function_of_seed_and_step_and_its_parts_are_the_whole(name):
    made, again, other = data(name), data(name), data(name, "seed=1")
    whole = made.train_batch(5)
    parts_of = [again.train_batch(5, micro, 4) for micro in range(4)]
    for key, value in whole.items():
        if key == "n_scored":
            assert {part[key] for part in parts_of} == {value}
        else:
            assert torch.equal(torch.cat([part[key] for part in parts_of]), value)
            assert value.dtype == torch.int64
    question = "src" if "src" in whole else "ids"
    assert not torch.equal(made.train_batch(6)[question], whole[question])
    assert not torch.equal(other.train_batch(5)[question], whole[question])


@pytest.mark.parametrize("name", TASKS)
def test_no_row_is_in_both_splits_and_every_seed_has_the_same_validation(name):
    made, other = data(name), data(name, "seed=7", "data.batch_size=8")

    def rows(batches):
        asked = [torch.cat([batch[key] for key in made.task.question], 1) for batch in batches]
        return [tuple(row) for row in torch.cat(asked).tolist()]

    val = rows(made.val_batches())
    assert len(val) == len(set(val)) == made.n_val
    assert val == rows(other.val_batches())
    assert not set(val) & set(rows(made.train_batch(step) for step in range(40)))
    assert made.record["sha256"] == other.record["sha256"] != data(name, "data.n_val=100").record["sha256"]


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_processes_share_the_validation_rows_and_do_as_many_batches(world_size):
    arrays = {"ids": np.arange(22).reshape(11, 2), "label": np.arange(11)}
    shares = [list(ValRows(arrays, 2, rank, world_size)) for rank in range(world_size)]
    assert {len(share) for share in shares} == {-(-11 // (2 * world_size))}
    labels = [label for share in shares for batch in share for label in batch["label"].tolist() if label != IGNORED]
    assert sorted(labels) == list(range(11))


@pytest.mark.parametrize(
    ("name", "override", "message"),
    [
        ("reverse", "data.task.n_symbols=1", "n_symbols .1. must be a whole number from 2 to 4096"),
        ("reverse", "data.seq_len=3", r"data.seq_len \(3\) must be at least 4"),
        ("sort_pointer", "data.seq_len=17", r"must lie between 2 and data.task.n_numbers \(16\)"),
        ("majority", "data.seq_len=2", "at least 3"),
        ("histogram", "data.seq_len=3", r"largest tag, data.task.most=4"),
        ("histogram", "data.n_val=0", "data.n_val"),
    ],
)
def test_what_cannot_be_made_is_refused(name, override, message):
    with pytest.raises(ConfigError, match=message):
        make(name, override)


def test_too_few_different_rows_are_noticed():
    with pytest.raises(DataError, match="too few different rows"):
        SyntheticData(Reverse(2), seq_len=4, batch_size=2, n_val=512, seed=0).prepare(lambda line: None)


def test_a_tie_never_remains():
    rows = Majority(2).rows(np.random.default_rng(0), 2000, 6)
    for ids, pos, label in zip(rows["ids"], rows["pos"], rows["label"], strict=True):
        assert 2 * (ids[pos >= 0] == label).sum() > (pos >= 0).sum()
