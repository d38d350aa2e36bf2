"""Attention alone: sparse masks by each fast way, and scores by definition, against causal attention by torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from minitf.bench.timing import CLOCKS, Clock, Timing, interleave, ratios, table
from minitf.blocks.attend.band import attend_band
from minitf.blocks.attend.flex import attend_flex
from minitf.blocks.attend.reference import attend_reference
from minitf.blocks.attend.sdpa import attend_sdpa
from minitf.blocks.checks import check_positive
from minitf.blocks.mask import Mask
from minitf.blocks.mask.causal import Causal
from minitf.blocks.normalize import Normalize
from minitf.blocks.score import Score
from minitf.errors import ConfigError

BASE = "causal, torch's fused attention"
WAYS = {"sdpa": attend_sdpa, "band": attend_band, "flex": attend_flex}


def run(
    *,
    threads: int,
    clock: str,
    rounds: int,
    steps: int,
    length: int,
    score_length: int,
    n_heads: int,
    d_head: int,
    gradient: bool,
    masks: dict[str, Mask],
    scores: dict[str, Callable[..., Score]],
    normalize: Callable[..., Normalize],
    folder: Path,
) -> dict[str, Any]:
    """Time both comparisons in turn, print them, and return all figures.

    Args:
        threads: threads of torch.
        clock: "cpu" (seconds of this process) or "wall".
        rounds: rounds that count, after one to warm up.
        steps: passes per round.
        length: tokens of the row for the masks.
        score_length: tokens of the row for the scores, which are computed by definition.
        n_heads, d_head: sizes of attention; there is one row.
        gradient: time the backward pass, too.
        masks: by name; each is computed by every fast way.
        scores: factories, by name.
        normalize: factory of the normaliser behind the scores.
        folder: not used; the figures are written by the caller.

    Raises:
        ConfigError: an unknown clock, or numbers below 1.
    """
    if clock not in CLOCKS:
        raise ConfigError(f"clock must be one of {', '.join(CLOCKS)}, got {clock!r}")
    check_positive(threads=threads, rounds=rounds, steps=steps, length=length, score_length=score_length)
    check_positive(n_heads=n_heads, d_head=d_head)
    torch.set_num_threads(threads)
    kind = "forward and backward" if gradient else "forward"
    print(f"{threads} thread(s), {clock} clock, {rounds} rounds in turn after one to warm up; {kind}\n")
    how = {"clock": CLOCKS[clock], "rounds": rounds, "steps": steps, "gradient": gradient}
    made = {name: make(d_head=d_head, n_heads=n_heads) for name, make in scores.items()}
    return {
        "masks": _compare(by_mask(masks), length, n_heads, d_head, **how),
        "scores": _compare(by_score(made, normalize(n_heads=n_heads)), score_length, n_heads, d_head, **how),
    }


Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def by_mask(masks: dict[str, Mask]) -> dict[str, Attend]:
    """Every mask by every fast way."""

    def one(mask: Mask, attend: Callable[..., Tensor]) -> Attend:
        def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            pos = torch.arange(q.size(2))[None]
            return attend(q, k, v, scale=q.size(-1) ** -0.5, mask=mask, q_pos=pos, k_pos=pos, plain=True)

        return call

    return {f"{name}, fast={way}": one(mask, attend) for name, mask in masks.items() for way, attend in WAYS.items()}


def by_score(scores: dict[str, Score], normalize: Normalize) -> dict[str, Attend]:
    """Every score by definition, under a causal mask."""

    def one(score: Score) -> Attend:
        def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            pos = torch.arange(q.size(2))[None]
            parts = {"score": score, "normalize": normalize, "mask": Causal()}
            return attend_reference(q, k, v, **parts, q_pos=pos, k_pos=pos)[0]

        return call

    return {f"{name}, by definition": one(score) for name, score in scores.items()}


def _compare(
    ways: dict[str, Attend],
    length: int,
    n_heads: int,
    d_head: int,
    *,
    clock: Clock,
    rounds: int,
    steps: int,
    gradient: bool,
) -> dict[str, Any]:
    """Seconds of every way, and how they compare with the fused causal attention, round by round."""
    torch.manual_seed(0)
    rows = [torch.randn(1, n_heads, length, d_head, requires_grad=gradient) for _ in range(3)]
    ways = {BASE: lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), **ways}

    def timed(attend: Attend) -> float:
        start = clock()
        for _ in range(steps):
            out = attend(*rows)
            if gradient:
                out.sum().backward()
        return (clock() - start) / steps

    with torch.set_grad_enabled(gradient):
        contenders = {name: lambda attend=attend: timed(attend) for name, attend in ways.items()}
        timings = interleave(contenders, dict.fromkeys(ways, length), rounds)
    print(f"{n_heads} heads of width {d_head}, one row of {length} tokens\n{table(timings)}\n")
    return {"length": length, "ways": {t.name: _figures(t, timings[0]) for t in timings}}


def _figures(timing: Timing, base: Timing) -> dict[str, Any]:
    shares = sorted(ratios(timing, base))
    return {"seconds": timing.seconds, "of_causal": [shares[0], shares[len(shares) // 2], shares[-1]]}
