"""How long the same work takes in two ways, in seconds of CPU of one thread, round by round in turn."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from minitf.bench.timing import CLOCKS, Timing, interleave, ratios
from minitf.blocks.score import Score
from minitf.blocks.score.additive import Additive
from minitf.blocks.score.scaled_dot import ScaledDot
from minitf.cache.dynamic import Dynamic
from minitf.config import build, compose
from minitf.studies.loop import Subject, prepare

CLOCK = CLOCKS["cpu"]
BASE = ("data=copy", "data.task.form=seq2seq", "data.n_val=1", "task=seq2seq", "optim=adamw")
N_SOURCE = 16  # tokens of the source while a target is written

Work = Callable[[], object]


def training(
    seed: int,
    first: Sequence[str],
    second: Sequence[str],
    length: int,
    width: int = 128,
    batch_size: int = 8,
    rounds: int = 5,
    steps: int = 2,
) -> dict[str, float]:
    """Training steps of two encoder-decoders on the same rows, source and target as long.

    Args:
        seed: of weights and rows.
        first, second: overrides of configs/train.yaml that choose the models.
        length: tokens of a source, and of a target.
        width: d_model of both.
        batch_size: rows.
        rounds: that count, after one to warm up.
        steps: of each model in a round.

    Returns:
        "ratio", how many times as long a step of the first takes as one of the second, the median of rounds, with
        "ratio_low" and "ratio_high"; tokens of the target per second of "first" and "second"; their parameters in
        thousands, "first_size" and "second_size".
    """
    chosen = {"first": first, "second": second}
    subjects = {name: _subject(seed, [*of, f"model.d_model={width}"], length) for name, of in chosen.items()}
    vocab_size = subjects["first"].data.task.n_symbols
    draw = torch.Generator().manual_seed(seed)
    src, ids, targets = torch.randint(vocab_size, (3, batch_size, length), generator=draw)
    batch = {"src": src, "ids": ids, "targets": targets}
    works = {name: _step(subject, batch) for name, subject in subjects.items()}
    timings = _timed({name: _repeated(work, steps) for name, work in works.items()}, rounds)
    tokens = batch_size * length
    return {
        **_spread("ratio", ratios(timings["first"], timings["second"])),
        **{name: tokens / timing.median for name, timing in timings.items()},
        **{f"{name}_size": sum(p.numel() for p in s.model.parameters()) / 1e3 for name, s in subjects.items()},
    }


def writing(
    seed: int,
    model: Sequence[str],
    cached: bool = True,
    short: int = 32,
    long: int = 2048,
    rounds: int = 5,
    steps: int = 10,
) -> dict[str, float]:
    """Tokens that one model writes behind a short and a long text of its own.

    Args:
        seed: of weights and tokens.
        model: overrides of configs/train.yaml that choose an encoder-decoder.
        cached: whether it keeps what it has made of the text; else it reads all of it for each token.
        short, long: tokens of the text.
        rounds: that count, after one to warm up.
        steps: tokens that are written in each round, always from the same text on.

    Returns:
        "growth", how many times as long a token takes behind the long text, the median of rounds, with "growth_low"
        and "growth_high"; milliseconds a token, "short" and "long".
    """
    subject = _subject(seed, model, length=long)
    draw = torch.Generator().manual_seed(seed)
    src = torch.randint(subject.data.task.n_symbols, (1, N_SOURCE), generator=draw)
    text = torch.randint(subject.data.task.n_symbols, (1, long + steps), generator=draw)
    net = subject.model.eval()
    with torch.no_grad():
        memory = net.encode(src)
        write = _with_caches if cached else _without
        works = {name: write(net, memory, text, n, steps) for name, n in {"short": short, "long": long}.items()}
        timings = _timed(works, rounds)
    growth = ratios(timings["long"], timings["short"])
    return {**_spread("growth", growth), **{name: 1e3 * timing.median for name, timing in timings.items()}}


def scores(
    seed: int, length: int, d_head: int = 64, n_heads: int = 6, rounds: int = 5, steps: int = 1
) -> dict[str, float]:
    """Causal attention of one row with additive scores, with products in the same plain code, and by a fused kernel.

    Args:
        seed: of the numbers.
        length: tokens.
        d_head, n_heads: sizes; hidden values of the additive score are as many as d_head.
        rounds: that count, after one to warm up.
        steps: passes in each round.

    Returns:
        How many times as long additive attention takes: "forward" and "both" (forward and backward) against products
        in the same code, "forward_fused" and "both_fused" against torch's kernel; the median of rounds, each with
        "_low" and "_high". All hidden values are computed at once, as is usual.
    """
    torch.manual_seed(seed)
    sizes = {"d_head": d_head, "n_heads": n_heads}
    parts = {"additive": Additive(**sizes, chunk=None), "dot": ScaledDot(**sizes)}
    later = torch.full((length, length), float("-inf")).triu(1)
    found = {}
    for kind, gradient in {"forward": False, "both": True}.items():
        q, k, v = (torch.randn(1, n_heads, length, d_head, requires_grad=gradient) for _ in range(3))
        ways = {name: partial(_plain, part, q, k, v, later) for name, part in parts.items()}
        ways["fused"] = partial(F.scaled_dot_product_attention, q, k, v, is_causal=True)
        with torch.set_grad_enabled(gradient):
            works = {name: _repeated(partial(_pass, way, gradient), steps) for name, way in ways.items()}
            timings = _timed(works, rounds)
        found |= _spread(kind, ratios(timings["additive"], timings["dot"]))
        found |= _spread(f"{kind}_fused", ratios(timings["additive"], timings["fused"]))
    return found


def _plain(score: Score, q: Tensor, k: Tensor, v: Tensor, later: Tensor) -> Tensor:
    return (score(q, k) + later).softmax(-1) @ v


def _pass(way: Callable[[], Tensor], gradient: bool) -> None:
    out = way()
    if gradient:
        out.sum().backward()


def _subject(seed: int, overrides: Sequence[str], length: int) -> Subject:
    return prepare(compose("train", [*BASE, *overrides, f"data.seq_len={length + 1}", f"seed={seed}"]))


def _step(subject: Subject, batch: dict[str, Tensor]) -> Work:
    """One training step: forward, backward, clipping, optimizer."""
    model, optimizer = subject.model.train(), build(subject.cfg.optim)(subject.model)

    def step() -> None:
        loss, _ = subject.objective(model, batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def _with_caches(net: Any, memory: Tensor, text: Tensor, n: int, steps: int) -> Callable[[], float]:
    kept = net.new_caches(Dynamic)
    net.hidden(text[:, :n], memory=memory, caches=kept)

    def timed() -> float:
        caches = copy.deepcopy(kept)
        start = CLOCK()
        for i in range(n, n + steps):
            net.step(text[:, i : i + 1], caches=caches, memory=memory)
        return (CLOCK() - start) / steps

    return timed


def _without(net: Any, memory: Tensor, text: Tensor, n: int, steps: int) -> Callable[[], float]:
    def timed() -> float:
        start = CLOCK()
        for i in range(n, n + steps):
            net.step(text[:, : i + 1], memory=memory)
        return (CLOCK() - start) / steps

    return timed


def _repeated(work: Work, steps: int) -> Callable[[], float]:
    def timed() -> float:
        start = CLOCK()
        for _ in range(steps):
            work()
        return (CLOCK() - start) / steps

    return timed


def _timed(contenders: dict[str, Callable[[], float]], rounds: int) -> dict[str, Timing]:
    timings = interleave(contenders, dict.fromkeys(contenders, 1), rounds)
    return {timing.name: timing for timing in timings}


def _spread(name: str, values: Sequence[float]) -> dict[str, float]:
    return {name: statistics.median(values), f"{name}_low": min(values), f"{name}_high": max(values)}
