"""Attention over given queries, keys and values, step by step, with the score, normaliser and mask of the config."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from minitf.blocks.attend.reference import attend_reference
from minitf.blocks.mask import Mask
from minitf.blocks.mask.full import Full
from minitf.blocks.normalize import Normalize
from minitf.blocks.score import Score
from minitf.config import build
from minitf.demo.text import matrix
from minitf.errors import ConfigError


@dataclass
class Steps:
    """What one head computes, without the axes of batch and head.

    Attributes:
        q, k, v: (T,d), (S,d), (S,d_v).
        products: (T,S) q.k, before the score does anything else.
        scores: (T,S) as the score gives them; -inf where the mask hides.
        weights: (T,S).
        out: (T,d_v).
        names: of the score and the normaliser.
        is_softmax: whether the weights are exp(score) / sum.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    products: Tensor
    scores: Tensor
    weights: Tensor
    out: Tensor
    names: tuple[str, str]
    is_softmax: bool


def parts_of(config: DictConfig, d_head: int) -> tuple[Score, Normalize]:
    """The score and the normaliser of the config's model, for one head.

    Raises:
        ConfigError: its attention has none.
    """
    if OmegaConf.select(config, "model.attention.score") is None:
        raise ConfigError(
            "this demo shows the score and the normaliser of the model's attention, and this model has none: choose "
            "another, such as model=gpt_tiny or model/attention=mha"
        )
    torch.manual_seed(config.seed)
    attention = config.model.attention
    return build(attention.score)(d_head=d_head, n_heads=1), build(attention.normalize)(n_heads=1)


def attend(
    config: DictConfig, q: Tensor, k: Tensor, v: Tensor, first_query: int = 0, mask: Mask | None = None
) -> Steps:
    """One head of attention, by definition.

    Args:
        config: chooses score, normaliser and mask.
        q, k, v: (T,d), (S,d), (S,d_v).
        first_query: place of the first query; the keys stand at 0, 1, 2, ...
        mask: instead of the config's.

    Raises:
        ConfigError: the config's attention has no score.
    """
    score, normalize = parts_of(config, q.size(-1))
    seen: dict[str, Tensor] = {}

    def tap(point: str, value: Tensor) -> Tensor:
        seen[point] = value
        return value

    if mask is None:  # a recurrent model has none: it reads all of the source
        mask = build(config.model.mask) if "mask" in config.model else Full()
    q_pos, k_pos = first_query + torch.arange(q.size(0))[None], torch.arange(k.size(0))[None]
    with torch.no_grad():
        out, weights = attend_reference(
            q[None, None],
            k[None, None],
            v[None, None],
            score=score,
            normalize=normalize,
            mask=mask,
            q_pos=q_pos,
            k_pos=k_pos,
            tap=tap,
        )
    hidden = ~mask.visible(q_pos[0][:, None], k_pos[0][None, :])
    return Steps(
        q=q,
        k=k,
        v=v,
        products=q @ k.T,
        scores=seen["scores"][0, 0].masked_fill(hidden, float("-inf")),
        weights=weights[0, 0],
        out=out[0, 0],
        names=(type(score).__name__, type(normalize).__name__),
        is_softmax=normalize.is_softmax,
    )


def own_mask(mask: Mask) -> str:
    """What a demo with a mask of its own says about it."""
    return f"The mask is {type(mask).__name__}, the demo's own; model/mask@demo.mask=NAME chooses another."


def show(steps: Steps, queries: Sequence[str], keys: Sequence[str], digits: int = 3) -> str:
    """Every step as a matrix, a row a query.

    Args:
        steps: what was computed.
        queries, keys: names of the tokens.
        digits: behind the point.
    """
    score, normalize = steps.names
    hidden = "" if steps.scores.isfinite().all() else "; a dot is hidden by the mask"
    shown = [
        matrix("q.k", steps.products, queries, keys, digits),
        matrix(f"scores ({score}){hidden}", steps.scores, queries, keys, digits),
    ]
    if steps.is_softmax:
        e = steps.scores.exp()
        with_sum = torch.cat([e, e.sum(-1, keepdim=True)], -1)
        shown.append(matrix("exp(score), and the sum of each row", with_sum, queries, [*keys, "sum"], digits))
    shown.append(matrix(f"weights ({normalize})", steps.weights, queries, keys, digits))
    shown.append(matrix("output: the values, weighted and summed", steps.out, queries, digits=digits))
    return "\n\n".join(shown)
