"""demo=toy3: three tokens, two features, every step by hand."""

from __future__ import annotations

import torch
from omegaconf import DictConfig
from torch import Tensor

from minitf.blocks.mask import Mask
from minitf.demo.steps import attend, own_mask, show
from minitf.demo.text import matrix, paragraph, table
from minitf.errors import ConfigError

TOKENS = ("x1", "x2", "x3")
X = ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0))


def toy3(*, random: int | None, mask: Mask, config: DictConfig) -> str:
    """Self-attention of x1 = (1,0), x2 = (0,1), x3 = (1,1) with W_Q = W_K = W_V = the identity.

    Args:
        random: a number draws W_Q and W_K at random, with this seed; None leaves them the identity.
        mask: of this demo alone, so that every model can be asked; the model's own may hide the later tokens.
        config: chooses score and normaliser.

    Raises:
        ConfigError: `random` is no whole number.
    """
    if random is not None and type(random) is not int:
        raise ConfigError(f"demo.random must be a whole number, or null for W_Q = W_K = identity; got {random!r}")
    x = torch.tensor(X)
    w_q = w_k = torch.eye(2)
    parts = [matrix("x, the three tokens", x, TOKENS)]
    if random is not None:
        w_q, w_k = torch.randn(2, 2, 2, generator=torch.Generator().manual_seed(random))
        parts += [matrix("W_Q", w_q, ["", ""]), matrix("W_K", w_k, ["", ""])]
        parts += [matrix("q = x W_Q", x @ w_q, TOKENS), matrix("k = x W_K", x @ w_k, TOKENS)]
    else:
        parts.append("W_Q = W_K = W_V = the identity, so q = k = v = x")
    parts.append(paragraph(own_mask(mask)))
    steps = attend(config, x @ w_q, x @ w_k, x, mask=mask)
    parts += [show(steps, TOKENS, TOKENS), _distances(x, steps.out), _diagonal(steps.scores)]
    return "\n\n".join(parts)


def _diagonal(scores: Tensor) -> str:
    best = scores == scores.amax(-1, keepdim=True)
    own, alone = best.diagonal(), best.sum(-1) == 1
    return paragraph(
        f"Its own score is the highest for {own.sum()} of {len(TOKENS)} tokens, for {(own & alone).sum()} of them "
        "alone; demo=diagonal tells how often that is so."
    )


def _distances(before: Tensor, after: Tensor) -> str:
    pairs = [(0, 1), (0, 2), (1, 2)]
    rows = [
        (
            f"  {TOKENS[i]} to {TOKENS[j]}",
            f"{(before[i] - before[j]).norm():.3f}",
            f"{(after[i] - after[j]).norm():.3f}",
        )
        for i, j in pairs
    ]
    return "distances between tokens, before and after they have read each other\n" + table(("", "x", "output"), rows)
