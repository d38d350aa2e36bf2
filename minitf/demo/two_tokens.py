"""demo=two_tokens: the smallest causal attention, and what happens when only the values change."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from omegaconf import DictConfig

from minitf.blocks.mask import Mask
from minitf.demo.steps import attend, own_mask, show
from minitf.demo.text import matrix, paragraph
from minitf.errors import ConfigError

TOKENS = ("token 1", "token 2")


def two_tokens(*, other_value: Sequence[float], mask: Mask, config: DictConfig) -> str:
    """Q = K = the identity, V = diag(2, 4); then the same with another value of token 2.

    Args:
        other_value: two numbers, the value of token 2 in the counterfactual.
        mask: of this demo alone, so that every model can be asked.
        config: chooses score and normaliser.

    Raises:
        ConfigError: not two numbers.
    """
    if len(other_value) != 2:
        raise ConfigError(f"demo.other_value must be two numbers, such as [10,10], got {list(other_value)}")
    x, v = torch.eye(2), torch.diag(torch.tensor([2.0, 4.0]))
    before = attend(config, x, x, v, mask=mask)
    changed = torch.stack([v[0], torch.tensor(list(map(float, other_value)))])
    after = attend(config, x, x, changed, mask=mask)
    moved = {
        "scores": not torch.equal(before.scores, after.scores),
        "weights": not torch.equal(before.weights, after.weights),
        "output": not torch.equal(before.out, after.out),
    }
    told = ", ".join(f"{name} {'changed' if did else 'unchanged'}" for name, did in moved.items())
    return "\n\n".join(
        [
            matrix("q = k, the identity", x, TOKENS),
            matrix("v", v, TOKENS),
            paragraph(own_mask(mask)),
            show(before, TOKENS, TOKENS, digits=4),
            paragraph(f"Only the value of token 2 is changed, to ({other_value[0]:g}, {other_value[1]:g}): {told}."),
            matrix("output now", after.out, TOKENS, digits=4),
            paragraph("Weights say where to read, values what is read there: no change of V can move a weight."),
        ]
    )
