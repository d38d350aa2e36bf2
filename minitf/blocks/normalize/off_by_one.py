"""A head that may read nothing."""

from __future__ import annotations

from torch import Tensor

from minitf.blocks.normalize import Normalize, hide


class OffByOne(Normalize):
    """exp(score) / (1 + sum): as if one more key had score 0 and value 0. Source: Miller 2023 (softmax1)."""

    invariants = frozenset({"permutation", "row_independence"})

    def forward(self, scores: Tensor, visible: Tensor) -> Tensor:
        scores = hide(scores, visible)
        top = scores.detach().amax(-1, keepdim=True).clamp_min(0)
        e = (scores - top).exp()
        return e / (e.sum(-1, keepdim=True) + (-top).exp())
