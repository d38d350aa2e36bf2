"""demo=pronoun: whom does "it" read? One query, three keys."""

from __future__ import annotations

import torch
from omegaconf import DictConfig
from torch import Tensor

from minitf.blocks.normalize import Normalize
from minitf.demo.steps import attend, parts_of
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
    weights_of_products = _weights(normalize, steps.products)
    head = ("", "key", "q.k", "score", "exp(score)", "weight", "exp(q.k)", "weight without the scale")
    rows = [
        (
            f"  {name}",
            f"({', '.join(f'{x:.0f}' for x in key)})",
            f"{steps.products[0, i]:.3f}",
            f"{steps.scores[0, i]:.3f}",
            f"{steps.scores[0, i].exp():.3f}",
            f"{steps.weights[0, i]:.4f}",
            f"{steps.products[0, i].exp():.3f}",
            f"{weights_of_products[0, i]:.4f}",
        )
        for i, (name, key) in enumerate(KEYS.items())
    ]
    sums = [t.exp().sum() for t in (steps.scores, steps.products)]
    rows.append(
        (
            "  sum",
            "",
            "",
            "",
            f"{sums[0]:.3f}",
            f"{steps.weights.sum():.4f}",
            f"{sums[1]:.3f}",
            f"{weights_of_products.sum():.4f}",
        )
    )
    with_scale, without = (_jacobian(normalize, t) for t in (steps.scores, steps.products))
    score, weigh = steps.names
    out = ", ".join(f"{x:.4f}" for x in steps.out[0])
    return "\n".join(
        [
            "猫追球，它累了 (the cat chases the ball; it is tired). Whom does 它 (it) read?",
            f"Its query is ({', '.join(f'{x:.0f}' for x in QUERY)}); score {score}, normaliser {weigh}.",
            "",
            table(head, rows, left=2),
            "",
            paragraph(
                f"Size of d weights / d scores (Frobenius norm of the Jacobian): {with_scale:.3f} with the score, "
                f"{without:.3f} with q.k itself. Sharper weights pass less gradient, {with_scale / without:.1f} times "
                "less here, but not none."
            ),
            paragraph(
                f"With one-hot values the output is the row of weights: ({out}). That is the output of a pointer "
                "network, which names a place instead of copying a content."
            ),
        ]
    )


def _weights(normalize: Normalize, scores: Tensor) -> Tensor:
    """(T,S) -> (T,S), every key visible."""
    return normalize(scores[None, None], torch.ones(1, 1, *scores.shape, dtype=torch.bool))[0, 0].detach()


def _jacobian(normalize: Normalize, scores: Tensor) -> float:
    """Frobenius norm of d weights / d scores of one row."""
    visible = torch.ones(1, 1, *scores.shape, dtype=torch.bool)
    jacobian = torch.autograd.functional.jacobian(lambda row: normalize(row[None, None], visible), scores)
    return float(jacobian.norm())
