"""demo=pronoun: whom does "it" read? One query, three keys."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from omegaconf import DictConfig
from torch import Tensor

from minitf.blocks.normalize import Normalize
from minitf.demo.steps import Steps, attend, parts_of
from minitf.demo.text import paragraph, table

# cat, ball, chase: 猫追球，它累了 (the cat chases the ball; it is tired)
KEYS = {"猫 (cat)": (2.0, 2.0, 0.0, 0.0), "球 (ball)": (1.0, 0.0, 1.0, 0.0), "追 (chase)": (0.0, 0.0, 1.0, 1.0)}
QUERY = (1.0, 1.0, 0.0, 0.0)


def pronoun(*, config: DictConfig) -> str:
    """The query of "it" against three keys, with and without the score's scale, and how much gradient passes.

    Args:
        config: chooses score and normaliser.
    """
    q, k = torch.tensor([QUERY]), torch.tensor(list(KEYS.values()))
    # with one-hot values the output is the row of weights itself
    steps = attend(config, q, k, torch.eye(len(KEYS)), first_query=len(KEYS))
    _, normalize = parts_of(config, q.size(-1))
    score, weigh = steps.names
    out = ", ".join(f"{x:.4f}" for x in steps.out[0])
    return "\n".join(
        [
            "猫追球，它累了 (the cat chases the ball; it is tired). Whom does 它 (it) read?",
            f"Its query is {_vector(QUERY)}; score {score}, normaliser {weigh}.",
            "",
            _weighing(steps, _weights(normalize, steps.products)),
            "",
            _gradients(*(_jacobian(normalize, t) for t in (steps.scores, steps.products))),
            paragraph(
                f"With one-hot values the output is the row of weights: ({out}). That is the output of a pointer "
                "network, which names a place instead of copying a content."
            ),
        ]
    )


def _weighing(steps: Steps, without: Tensor) -> str:
    """A line a key, from the product to the weight; `without`: weights of the products themselves."""
    head = ("", "key", "q.k", "score", "exp(score)", "weight", "exp(q.k)", "weight without the scale")
    products, scores, weights = steps.products[0], steps.scores[0], steps.weights[0]
    rows = [
        (
            f"  {name}",
            _vector(key),
            f"{products[i]:.3f}",
            f"{scores[i]:.3f}",
            f"{scores[i].exp():.3f}",
            f"{weights[i]:.4f}",
            f"{products[i].exp():.3f}",
            f"{without[0, i]:.4f}",
        )
        for i, (name, key) in enumerate(KEYS.items())
    ]
    e, plain = scores.exp().sum(), products.exp().sum()
    rows.append(("  sum", "", "", "", f"{e:.3f}", f"{weights.sum():.4f}", f"{plain:.3f}", f"{without.sum():.4f}"))
    return table(head, rows, left=2)


def _gradients(with_score: float, without: float) -> str:
    told = (
        f"Size of d weights / d scores (Frobenius norm of the Jacobian): {with_score:.3f} with the score, "
        f"{without:.3f} with q.k itself."
    )
    if 0 < without < with_score:
        told += f" Sharper weights pass less gradient, {with_score / without:.1f} times less here, but not none."
    return paragraph(told)


def _vector(values: Sequence[float]) -> str:
    return f"({', '.join(f'{x:.0f}' for x in values)})"


def _weights(normalize: Normalize, scores: Tensor) -> Tensor:
    """(T,S) -> (T,S), every key visible."""
    return normalize(scores[None, None], torch.ones(1, 1, *scores.shape, dtype=torch.bool))[0, 0].detach()


def _jacobian(normalize: Normalize, scores: Tensor) -> float:
    """Frobenius norm of d weights / d scores of one row."""
    visible = torch.ones(1, 1, *scores.shape, dtype=torch.bool)
    jacobian = torch.autograd.functional.jacobian(lambda row: normalize(row[None, None], visible), scores)
    return float(jacobian.norm())
