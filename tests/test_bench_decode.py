"""bench=decode compares equal work, counts what is there, and tells when something is not the same."""

import importlib.util

import pytest
import torch

from minitf.bench import decode_cache
from minitf.bench.decode_cache import memory_rows, storages
from minitf.bench.decode_contenders import LlamaShape, Written
from minitf.bench.decode_report import CONTEXT_LEGEND, SAME, SPEED_LEGEND, differences
from minitf.config import build, check, compose, group_options
from minitf.errors import ConfigError

SIZES = {"n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "d_model": 32, "d_ff": 48, "vocab_size": 61}
SMALL = [f"bench.shape.{name}={size}" for name, size in SIZES.items()]
SMALL += ["bench.rounds=1", "bench.batch_sizes=[1,2]", "bench.prompt_tokens=5", "bench.new_tokens=8"]
SMALL += ["bench.contexts=[6,12]", "bench.context_tokens=4"]


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_all_contenders_write_the_same_and_are_reported(one_thread, monkeypatch, capsys, tmp_path):
    one = {"model/attention": ["gqa"], "cache": ["dynamic"]}
    monkeypatch.setattr(decode_cache, "group_options", one.get)  # the test below has them all
    typed = ["bench=decode", *SMALL]
    cfg = compose("benchmark", typed)
    check(cfg, "benchmark", typed)
    figures = build(cfg.bench)(folder=tmp_path)
    told = capsys.readouterr().out
    assert set(figures["batches"]) == {1, 2}
    for rows, batch in figures["batches"].items():
        assert len(batch["seconds"]) == (5 if rows == 1 else 4)  # all, but no uncached text of several rows
        assert all(len(seconds) == 1 and seconds[0] > 0 for seconds in batch["seconds"].values())
        assert set(batch["tokens"].values()) == {SAME}
        assert not any(batch["graphs"].values())  # transformers' static cache ran eagerly, as its name says
        assert all(name in told for name in batch["seconds"])
    assert told.count("all write the same tokens") == 2
    assert [told.count(legend) for legend in (SPEED_LEGEND, CONTEXT_LEGEND, decode_cache.MEMORY_LEGEND)] == [2, 1, 1]
    assert all(len(cells) == 2 for cells in figures["contexts"].values())
    assert (tmp_path / "decode.png").read_bytes().startswith(b"\x89PNG")
    assert "ms per token" in (tmp_path / "decode.svg").read_text(encoding="utf-8")


def test_every_cache_takes_what_the_formula_says():
    rows = {row.name: row for row in memory_rows(LlamaShape(**SIZES), [6, 262, 264])}
    told = {name.partition(", ")[0] for name in rows} | {name.partition(", ")[2] for name in rows}
    assert told == (set(group_options("model/attention")) | set(group_options("cache"))) - {"none"}
    for row in rows.values():
        assert row.predicted == row.told == row.found, row
    assert rows["mha, dynamic"].found == [n * 2 * 4 * (8 + 8) * 4 for n in (6, 262, 264)]  # by hand, once
    assert rows["mqa, dynamic"].found == [n * 2 * 1 * (8 + 8) * 4 for n in (6, 262, 264)]


def test_storages_counts_what_is_kept_and_not_what_is_shown():
    class Holder:
        def __init__(self):
            table = torch.zeros(10, 4)
            self.views = (table[:2], table[5:])
            self.deep = {"pos": [torch.zeros(3, dtype=torch.int64)]}

    assert sorted((size, str(dtype)) for size, dtype in storages([Holder()])) == [
        (24, "torch.int64"),
        (160, "torch.float32"),
    ]


def test_a_text_that_differs_is_told_and_the_first_tokens_are_not_counted():
    base = torch.arange(12).view(2, 6)
    other = base.clone()
    other[1, 3:] = 0
    assert differences({"a": base, "b": other}, "a") == {"a": SAME, "b": "differs in 1 row(s), from token 4 on"}
    assert Written(base, [50.0, 60.0, 61.0, 63.0]).seconds_per_step == 1.5


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("bench.clock=sun", "clock must be one of cpu, wall"),
        ("bench.new_tokens=2", r"new_tokens \(2\) must be above 2"),
        ("bench.batch_sizes=[1,0]", r"batch_sizes\[1\] must be a whole number of at least 1, got 0"),
        ("bench.contexts=[12]", "two or more growing numbers"),
        ("bench.contexts=[12,6]", "two or more growing numbers"),
        ("bench.context_tokens=12", "contexts begin at 6"),
    ],
)
def test_wrong_numbers_are_refused(override, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        build(compose("benchmark", ["bench=decode", *SMALL, override]).bench)(folder=tmp_path)


def test_a_missing_library_is_refused_with_the_way_out(monkeypatch, tmp_path):
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else there(name))
    with pytest.raises(ConfigError, match=r"bench=decode needs matplotlib: pip install -e '\.\[bench\]'"):
        build(compose("benchmark", ["bench=decode", *SMALL]).bench)(folder=tmp_path)
