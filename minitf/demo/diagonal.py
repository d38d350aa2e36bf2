"""demo=diagonal: does a token fit itself best when queries are keys?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from omegaconf import DictConfig

from minitf.blocks.checks import check_positive
from minitf.demo.steps import parts_of
from minitf.demo.text import paragraph, table
from minitf.errors import ConfigError


def diagonal(*, widths: Sequence[int], length: int, n: int, config: DictConfig) -> str:
    """Share of the rows whose highest score is their own token's, with W_Q = W_K = the identity.

    Args:
        widths: of the tokens' vectors.
        length: tokens of a row, normally distributed.
        n: how many rows of tokens are drawn.
        config: chooses the score.

    Raises:
        ConfigError: no widths, or numbers below 1.
    """
    if not widths:
        raise ConfigError("demo.widths is empty: give some, such as [2,64]")
    check_positive(**{"demo.length": length, "demo.n": n}, **{f"demo.widths[{i}]": d for i, d in enumerate(widths)})
    draw = torch.Generator().manual_seed(config.seed)
    rows, name = [], ""
    for d in widths:
        score, _ = parts_of(config, d)
        name = type(score).__name__
        x = torch.randn(n, 1, length, d, generator=draw)
        equal = x / x.norm(dim=-1, keepdim=True)
        with torch.no_grad():
            shares = [(score(t, t).argmax(-1) == torch.arange(length)).float().mean() for t in (x, equal)]
        rows.append((f"{d}", *(f"{100 * share:.0f} %" for share in shares)))
    head = ("  width d", "normal vectors", "the same at equal length")
    return "\n".join(
        [
            paragraph(
                f"Share of {length} tokens whose best key is their own; q = k = x, score {name}, {n} rows of tokens."
            ),
            "",
            table(head, rows, left=0),
            "",
            paragraph(
                "q.k is not the angle alone: a long key wins over the token itself. The diagonal wins for sure only "
                "where all vectors are equally long; wide ones are nearly so, and others are nearly orthogonal to them."
            ),
        ]
    )
