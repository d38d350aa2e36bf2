"""Benchmarks measure what they say, in small."""

import pytest
import torch

from minitf.bench.attention import BASE, WAYS, by_mask, by_score
from minitf.config import build, check, compose
from minitf.errors import ConfigError

SMALL = ["bench.length=64", "bench.score_length=16", "bench.rounds=2", "bench.steps=1", "bench.n_heads=2"]
SMALL += ["bench.d_head=8", "bench.masks.window.window=4", "bench.masks.bigbird.length=64"]


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("gradient", ["false", "true"])
def test_attention_is_timed_by_every_way(gradient, one_thread, capsys, tmp_path):
    typed = ["bench=attention", *SMALL, f"bench.gradient={gradient}"]
    cfg = compose("benchmark", typed)
    check(cfg, "benchmark", typed)
    figures = build(cfg.bench)(folder=tmp_path)
    told = capsys.readouterr().out
    ways = [BASE, *(f"{mask}, fast={way}" for mask in ("window", "bigbird") for way in WAYS)]
    assert list(figures["masks"]["ways"]) == ways
    assert all(way in told for way in ways)
    assert set(figures["scores"]["ways"]) == {BASE, "scaled_dot, by definition", "additive, by definition"}
    assert figures["masks"]["ways"][BASE]["of_causal"] == [1.0, 1.0, 1.0]
    assert all(len(way["seconds"]) == 2 for part in figures.values() for way in part["ways"].values())


def test_the_ways_of_a_mask_give_the_same_and_differ_from_causal():
    cfg = compose("benchmark", ["bench=attention", *SMALL])
    q, k, v = (torch.randn(1, 2, 64, 8) for _ in range(3))
    causal = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    outs = {name: attend(q, k, v) for name, attend in by_mask(build(cfg.bench).keywords["masks"]).items()}
    for name, out in outs.items():
        torch.testing.assert_close(out, outs[f"{name.split(',')[0]}, fast=sdpa"], atol=1e-5, rtol=0)
        assert not torch.allclose(out, causal)
    scores = {name: make(d_head=8, n_heads=2) for name, make in build(cfg.bench).keywords["scores"].items()}
    dots = by_score(scores, build(cfg.bench).keywords["normalize"](n_heads=2))
    torch.testing.assert_close(dots["scaled_dot, by definition"](q, k, v), causal, atol=1e-5, rtol=0)


def test_wrong_numbers_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="clock must be one of cpu, wall"):
        build(compose("benchmark", ["bench=attention", "bench.clock=sun"]).bench)(folder=tmp_path)
    with pytest.raises(ConfigError, match="rounds must be a whole number of at least 1"):
        build(compose("benchmark", ["bench=attention", "bench.rounds=0"]).bench)(folder=tmp_path)
