"""One head, from lists of numbers: what the worked examples and the laws start from."""

import torch

from minitf.blocks.attend.reference import attend_reference
from minitf.blocks.attend.sdpa import attend_sdpa
from minitf.blocks.mask.full import Full
from minitf.blocks.normalize.softmax import Softmax
from minitf.blocks.score.scaled_dot import ScaledDot

PRONOUN = [[1, 1, 0, 0]], [[2, 2, 0, 0], [1, 0, 1, 0], [0, 0, 1, 1]]  # 它; 猫 and two more
THREE = [[1, 0], [0, 1], [1, 1]]
EYE = [[1, 0], [0, 1]]


def read(q, k, v, mask=None, scale=None, normalize=Softmax, bias=None, k_order=None):
    """Output, weights and raw scores of one head; the fast path must agree."""
    q, k, v = (torch.as_tensor(t, dtype=torch.float32)[None, None] for t in (q, k, v))
    score = ScaledDot(d_head=q.size(-1), n_heads=1)
    score.scale = score.scale if scale is None else scale
    seen = {}
    where = {
        "mask": mask or Full(),
        "q_pos": torch.arange(q.size(2))[None] + max(0, k.size(2) - q.size(2)),  # the last places of the keys
        "k_pos": (torch.arange(k.size(2)) if k_order is None else k_order)[None],
        "bias": bias,
    }
    out, weights = attend_reference(
        q, k, v, score=score, normalize=normalize(n_heads=1), **where, tap=lambda name, x: seen.setdefault(name, x)
    )
    if normalize is Softmax:
        fast = attend_sdpa(q, k, v, scale=score.scale, plain=k_order is None, **where)
        torch.testing.assert_close(fast, out, atol=1e-5, rtol=0)
    return out[0, 0], weights[0, 0], seen["scores"][0, 0]


def assert_digits(actual, expected, digits):
    torch.testing.assert_close(actual, torch.tensor(expected), atol=0.5001 * 10**-digits, rtol=0)


def steepness(weights):
    """Size of softmax's Jacobian at these weights."""
    return (weights.diag() - weights[:, None] * weights).norm()
