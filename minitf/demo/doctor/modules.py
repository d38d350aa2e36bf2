"""Every attention module of a model as a function of queries, keys and values that are given to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from minitf.analysis.forward import Batch, run
from minitf.analysis.sites import Site
from minitf.tap import Tap

GIVEN = ("q", "k", "v")
Given = Mapping[Site, Tensor]


class Modules:
    """The attention modules of a model that can be given queries, keys and values, all of them in one pass.

    Args:
        model: any.
        batch: what the model is run on while its attention gets something else; B rows.
        found: its sites.

    Attributes:
        sites: those that can be given something.
        shapes: site -> shapes of its q (B,H,T,d), k (B,G,S,d) and v (B,G,S,d_v).
    """

    def __init__(self, model: nn.Module, batch: Batch, found: Sequence[Site]) -> None:
        self.model, self.batch = model, batch
        known = set(Tap.names(model))
        self.sites = [site for site in found if all(site.point(p) in known for p in (*GIVEN, "scores", "heads"))]
        own = self.read(GIVEN)
        self.shapes = {site: tuple(tuple(own[p][site].shape) for p in GIVEN) for site in self.sites}

    @torch.no_grad()
    def read(self, points: Sequence[str], given: Mapping[str, Given] | None = None) -> dict[str, dict[Site, Tensor]]:
        """Activations by point and site.

        Args:
            points: names of tap points.
            given: point -> what each site gets there; None: what the model makes of its tokens.
        """
        edit = {
            site.point(point): lambda _, value=value: value
            for point, values in (given or {}).items()
            for site, value in values.items()
        }
        if not self.sites:
            return {point: {} for point in points}
        with Tap(self.model, at=[s.point(p) for s in self.sites for p in points], edit=edit) as tap:
            run(self.model, self.batch)
        return {point: {site: tap[site.point(point)] for site in self.sites} for point in points}

    def draw(self, seed: int, n: int = 2) -> list[dict[Site, Tensor]]:
        """The first `n` of queries, keys and values: independent numbers with mean 0 and variance 1, others in each row
        of the batch."""
        generator = torch.Generator().manual_seed(seed)
        return [
            {s: torch.randn(self.shapes[s][i], generator=generator, dtype=torch.float64) for s in self.sites}
            for i in range(n)
        ]

    def amounts(self, q: Given, k: Given, seed: int = 0) -> dict[Site, Tensor]:
        """How much of each value goes into each output, (B,H,T,S): the weights as they act, dropout included.

        The values are unit vectors, as many keys at a time as a value has numbers; so the outputs are the weights.

        Args:
            q, k: as `draw` gives them.
            seed: of the dropout.
        """
        made = {s: torch.zeros(*self.shapes[s][0][:3], self.shapes[s][1][2], dtype=torch.float64) for s in self.sites}
        step = min((self.shapes[s][2][3] for s in self.sites), default=1)
        for start in range(0, max((m.size(-1) for m in made.values()), default=0), step):
            v = {s: torch.zeros(self.shapes[s][2], dtype=torch.float64) for s in self.sites}
            for values in v.values():
                n = min(step, values.size(2) - start)
                for i in range(n):
                    values[:, :, start + i, i] = 1
            torch.manual_seed(seed)
            heads = self.read(["heads"], {"q": q, "k": k, "v": v})["heads"]
            for site, weights in made.items():
                n = max(0, min(step, weights.size(-1) - start))
                weights[..., start : start + n] = heads[site][..., :n]
        return made
