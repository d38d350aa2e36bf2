"""demo=variance: why scores are divided by the square root of the width."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from omegaconf import DictConfig

from minitf.blocks.checks import check_positive
from minitf.demo.steps import parts_of
from minitf.demo.text import paragraph, table
from minitf.errors import ConfigError


def variance(*, widths: Sequence[int], n: int, config: DictConfig) -> str:
    """The variance of q.k by the width of a head, as it is and as the score makes it.

    Args:
        widths: of a head.
        n: number of queries, and of keys; every query meets every key.
        config: chooses the score.

    Raises:
        ConfigError: no widths, or numbers below 1.
    """
    if not widths:
        raise ConfigError("demo.widths is empty: give some, such as [8,64]")
    check_positive(**{"demo.n": n}, **{f"demo.widths[{i}]": d for i, d in enumerate(widths)})
    draw = torch.Generator().manual_seed(config.seed)
    rows, name = [], ""
    for d in widths:
        score, _ = parts_of(config, d)
        name = type(score).__name__
        q, k = torch.randn(2, 1, 1, n, d, generator=draw)
        products = q @ k.transpose(-2, -1)
        with torch.no_grad():
            scores = score(q, k)
        rows.append((f"{d}", f"{products.var():.1f}", f"{products.std():.2f}", f"{d**0.5:.2f}", f"{scores.var():.2f}"))
    head = ("  width d", "variance of q.k", "its root", "root of d", f"variance of {name}")
    return "\n".join(
        [
            paragraph(f"q and k of independent numbers with mean 0 and variance 1; {n} queries x {n} keys."),
            "",
            table(head, rows, left=0),
            "",
            paragraph(
                "The variance of q.k is d: wide heads get large scores, and softmax of large scores is nearly hard."
            ),
        ]
    )
